"""Does it matter how calibration samples are chosen? PP-OCRv4 on laboratory lines: `make selection`.

Random, stratified, balanced and diverse selection at several sizes, five seeds each, all scored on the same 400 lines, of
which no document gives a calibration sample; uniform noise beside them; and sets that leave one device out.

Each measurement is one line of --out, and is not made again: a stopped run goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from calib import calibrators, evaluate, metrics, observe, pipeline, qdq, scales
from calib.data import building, noise, recipe, select, sets, sources, writing
from calib.data.batch import Samples
from calib.data.select import Held, Part, Rules
from calib.data.sets import SampleSet
from calib.data.source import Item
from calib.graph import load, normalize, save
from calib.plan import Plan
from calib.qdq import Form
from calib.quality.coverage import coverage
from calib.quality.sufficiency import sufficiency
from calib.runtime import ort

RECIPE = Path("datasets/lab-reports.toml")
MODEL = "package:rapidocr-onnxruntime/rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx"
SIZES = (16, 64, 256)
SEEDS = range(5)
CALIBRATORS = ("max", "percentile-99.99", "mse")
SCORED = "mse"
SELECTIONS: Mapping[str, tuple[tuple[str, ...], Part]] = {
    "random": ((), Part(1)),
    "stratified": (("device",), Part(1)),
    "balanced": (("device",), Part(1, balance="balanced")),
    "k-means": ((), Part(1, method="kmeans")),
    "k-center": ((), Part(1, method="kcenter")),
}


class Bench:
    """The model, the lines and the one evaluation set that everything is scored on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = load.locate(MODEL, Path())
        self.model = normalize.normalize(load.load(self.path)).model
        self.tensors = qdq.quantizable(self.model)
        self.ranged = qdq.unranged(self.model)
        self.recipe = recipe.load(RECIPE)
        source = sources.open_source(self.recipe.source, self.recipe.options, RECIPE.parent)
        self.items = [item for item in source.items() if isinstance(item, Item)]
        self.evaluation = building.build(RECIPE, folder)[1]
        self.metric = metrics.make("ctc-text", {}, {e: v for e, v in self.model.metadata_props.items()})
        self.vectors: dict[str, np.ndarray] = {}

    def choose(self, stratify: tuple[str, ...], part: Part, seed: int) -> list[Item]:
        """Return calibration samples; the evaluation set is held, so that its documents stay on its side."""
        other = Part(len(self.evaluation))
        rules = Rules(stratify, "document", "", seed)
        held = Held((), tuple(entry.metadata for entry in self.evaluation.entries))
        candidates = select.gather(iter(self.items), part, other, rules)
        with observe.embedding(self.model, self.tensors) as embed:

            def vector(item: Item) -> np.ndarray:
                identity = str(item.record["id"])
                if identity not in self.vectors:
                    self.vectors[identity] = embed(item.read())
                return self.vectors[identity]

            return list(select.choose(candidates, part, other, rules, held=held, embed=vector).calibration)

    def write(self, items: list[Item], folder: Path) -> SampleSet:
        blocks = select.blocks([item.record for item in items], "document", sets.BLOCKS)
        order = sorted(range(len(items)), key=lambda at: blocks[at])
        samples = ((str(items[at].record["id"]), items[at].read(), items[at].record) for at in order)
        header = {"group": "document", "stratify": ["device"]}
        return writing.write(folder, samples, header, [blocks[at] for at in order])

    def calibrate(self, samples: Samples) -> tuple[observe.counting.Observed, dict[str, scales.Scales]]:
        seen = observe.observe(self.model, samples, self.tensors, self.ranged, batch_size=4, shards=True)
        origin = scales.Origin("experiment")
        return seen, {
            name: pipeline.scales_from(self.model, Plan(), seen, calibrators.parse(name), origin)
            for name in CALIBRATORS
        }

    def score(self, found: scales.Scales | None) -> list[tuple[float, float]]:
        """Return edits and characters of every evaluation line; FP32's without scales."""
        model = self.model if found is None else qdq.quantize(self.model, Plan(), found, Form("fp32")).model
        path = self.folder / "scored.onnx"
        save.save(model, path)
        with ort.OrtRunner(path) as runner:
            result = evaluate.evaluate(runner, self.evaluation, self.metric, model_sha256="", batch_size=8)
        return [(top, bottom) for top, bottom in result.terms("cer")]


def measurements(bench: Bench, done: set[str]) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield what is not done yet, by key."""
    if "fp32" not in done:
        documents = bench.evaluation.column("document")
        yield "fp32", {"edits": bench.score(None), "documents": documents, "devices": bench.evaluation.column("device")}
    for size in SIZES[::-1]:
        for seed in SEEDS:
            for name, (stratify, part) in SELECTIONS.items():
                key = f"{name}/{size}/{seed}"
                if key not in done:
                    items = bench.choose(stratify, replace(part, samples=size), seed)
                    yield key, one(bench, items, predict=name == "random")
            if f"noise/{size}/{seed}" not in done and seed < 1:
                items = bench.choose((), Part(size), seed)
                with tempfile.TemporaryDirectory() as folder:
                    control = noise.like(bench.write(items, Path(folder) / "set"))
                    _, found = bench.calibrate(control)
                yield f"noise/{size}/{seed}", summary(bench, found)
    for device in sorted(set(bench.evaluation.column("device"))):
        if f"without/{device}" not in done:
            yield f"without/{device}", without(bench, device)


def summary(bench: Bench, found: Mapping[str, scales.Scales]) -> dict[str, object]:
    kept = {name: {t: float(s) for t, s in scale.activations.items()} for name, scale in found.items()}
    return {"scales": kept, "edits": bench.score(found[SCORED])}


def one(bench: Bench, items: list[Item], *, predict: bool) -> dict[str, object]:
    """Calibrate and score; where asked, also say how far the scales are expected to be off."""
    with tempfile.TemporaryDirectory() as folder:
        seen, found = bench.calibrate(bench.write(items, Path(folder) / "set"))
    predicted = {}
    for name in CALIBRATORS if predict else ():
        judged = sufficiency(seen.shards, seen.tensors, calibrators.parse(name))
        predicted[name] = {curve.tensor: curve.deviation[-1] for curve in judged.curves}
    devices = [str(item.record["device"]) for item in items]
    return {
        **summary(bench, found),
        "predicted": predicted,
        "devices": {device: devices.count(device) for device in sorted(set(devices))},
    }


def without(bench: Bench, device: str) -> dict[str, object]:
    """Calibrate without one device, and let coverage say which slice is worst off."""
    devices = tuple(sorted({*bench.evaluation.column("device")} - {device}))
    items = bench.choose((), Part(256, where={"device": devices}), 0)
    with tempfile.TemporaryDirectory() as folder:
        samples = bench.write(items, Path(folder) / "set")
        _, found = bench.calibrate(samples)
        thresholds = {
            name: {tensor: 127 * float(scale) for tensor, scale in item.activations.items()}
            for name, item in found.items()
        }
        both = [
            observe.features(bench.model, part, bench.tensors, thresholds, batch_size=4)
            for part in (samples, bench.evaluation)
        ]
        metadata = [[entry.metadata for entry in part.entries] for part in (samples, bench.evaluation)]
    named = {}
    for name in CALIBRATORS:
        judged = coverage(
            both[1],
            metadata[1],
            ("device",),
            name,
            thresholds=thresholds[name],
            calibration=both[0],
            calibration_metadata=metadata[0],
        )
        slices = [[clip.value, clip.tensor, clip.share, clip.hit, clip.overshoot] for clip in judged.slices]
        named[name] = {"slices": slices, "uncovered": list(judged.uncovered)}
    return {"coverage": named, "edits": bench.score(found[SCORED])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/selection.jsonl"))
    out = parser.parse_args().out
    out.parent.mkdir(parents=True, exist_ok=True)
    done = {json.loads(line)["key"] for line in out.read_text().splitlines()} if out.exists() else set()
    with tempfile.TemporaryDirectory(prefix="calib-selection-") as folder:
        for key, found in measurements(Bench(Path(folder)), done):
            with out.open("a") as stream:
                stream.write(json.dumps({"key": key, **found}) + "\n")
            print(key, flush=True)


if __name__ == "__main__":
    main()
