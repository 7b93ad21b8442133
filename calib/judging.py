"""Building and judging sample sets, from files to artefacts, for the commands `calib data ...`."""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import onnx_ir as ir

from calib import observe, pipeline, qdq, quality, scales
from calib.calibrators import Calibrator
from calib.data import building, recipe, select, sets, sources, writing
from calib.data.prepare import Preparer
from calib.data.sets import Inputs, SampleSet
from calib.data.source import Fault, Item, Record
from calib.errors import ConfigError, DataError
from calib.graph import load as graph_load
from calib.graph import normalize
from calib.plan import Plan
from calib.progress import Progress
from calib.quality import LIMIT, Comparison, Quality
from calib.scales import Scales
from calib.statistics import Observed


@dataclass(frozen=True, slots=True)
class Later:
    """A later sample that a calibration set is compared with.

    Attributes:
        path: a capture log (.jsonl, .jsonl.gz), a recipe (.toml) whose source is read, or a sample set.
        samples: how many are drawn of a log or a source.
        skip: unreadable ones that may be left out.
        seed: another one draws others.
    """

    path: Path
    samples: int = 512
    skip: int = 0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class With:
    """What a set is judged with.

    Attributes:
        model: float model; None: only inputs are compared.
        calibrator: makes the scales.
        scales: scales.json to judge for clipping instead.
        batch_size: samples a batch; it changes memory and speed only.
    """

    model: Path | None
    calibrator: Calibrator
    scales: Path | None = None
    batch_size: int = 4


@contextmanager
def embedding(model: Path) -> Iterator[building.Embed]:
    """Yield the function from a sample's inputs to the model's features of them.

    Raises:
        ModelError: the model cannot be read or run.
    """
    normalized = normalize.normalize(graph_load.load(model)).model
    with observe.embedding(normalized, qdq.quantizable(normalized)) as embed:
        yield embed


def build(
    path: Path, out: Path, progress: Progress, *, model: Path | None = None, extend: Path | None = None
) -> tuple[SampleSet, SampleSet]:
    """Build a recipe's two sets.

    Raises:
        CalibError: the recipe, the source, the model or the set that is extended is wrong.
    """
    declared = recipe.load(path)
    if declared.needs_model and model is None:
        raise ConfigError(f"{path} chooses samples by the model's features: give the model with --model")
    total = declared.calibration.samples + declared.evaluation.samples
    with ExitStack() as stack:
        embed = stack.enter_context(embedding(model)) if declared.needs_model and model else None
        advance = stack.enter_context(progress.stage("Sampling the data", total))
        return building.build(path, out, embed=embed, extend=extend, progress=advance)


def check(
    data: Path,
    tools: With,
    progress: Progress,
    *,
    later: Later | None = None,
    columns: tuple[str, ...] = (),
    limit: float = LIMIT,
) -> Quality:
    """Judge a calibration set: its size, what its scales clip, drift and duplicates.

    Args:
        data: a folder that `build` made, a sample set, or a recipe, which is built for this.
        tools: what it is judged with.
        progress: told of every stage.
        later: what the set is compared with; its evaluation set by default.
        columns: metadata columns whose values are looked at apart; those that the set is stratified by, by default.
        limit: effect from which a difference is drift.

    Raises:
        CalibError: the data, the model or the scales are wrong.
    """
    with tempfile.TemporaryDirectory(prefix="calib-") as temporary:
        base, folder = (data.parent, Path(temporary) / "sets") if data.suffix == ".toml" else (Path(), data)
        if folder != data:
            build(data, folder, progress, model=tools.model)
        calibration, evaluation = _opened(folder)
        others = {"evaluation": evaluation} if evaluation else {}
        if later:
            others = {later.path.name: _sample(later, calibration, base, Path(temporary) / "later", progress)}
        left_out = tuple(note for other in others.values() for note in other.notes) if later else ()
        seen = _seen(tools.model, calibration, tools, progress) if tools.model else None
        found = _scales(seen, calibration, tools, progress) if seen else None
        question = quality.Question(
            calibration=calibration,
            others=others,
            model=seen.model if seen else None,
            seen=seen.observed if seen else None,
            calibrator=tools.calibrator,
            scales={found.origin.calibrator: found} if found else {},
            columns=columns or calibration.stratify,
            limit=limit,
        )
        judged = quality.judge(question, progress, batch_size=tools.batch_size)
        if later and not judged.drift:  # a nightly job must not take that for an answer
            raise DataError(" ".join(judged.notes))
        return replace(judged, notes=(*judged.notes, *left_out))


def compare(first: Path, second: Path, evaluation: Path, model: Path, tools: With, progress: Progress) -> Comparison:
    """Compare the scales that two calibration sets give, and what each clips of an evaluation set.

    Raises:
        CalibError: a set or the model is wrong.
    """
    sides, thresholds = [], {}
    for name, path in (("first", first), ("second", second)):
        samples = _opened(path)[0]
        seen = _seen(model, samples, tools, progress)
        found = _scales(seen, samples, tools, progress)
        sides.append(quality.Side(str(path), seen.observed, found))
        thresholds[name] = found.thresholds()
    judged = _opened(evaluation)[1] or _opened(evaluation)[0]
    with progress.stage(f"Counting what is clipped of {evaluation}", len(judged)) as advance:
        features = observe.features(
            seen.model,
            judged,
            list(seen.observed.tensors),
            thresholds,
            batch_size=tools.batch_size,
            progress=advance,
        )
    return quality.compare(sides[0], sides[1], tools.calibrator, features)


@dataclass(frozen=True, slots=True)
class _Seen:
    model: ir.Model
    model_sha256: str
    observed: Observed


def _seen(path: Path, samples: SampleSet, tools: With, progress: Progress) -> _Seen:
    model = normalize.normalize(graph_load.load(path)).model
    tensors = qdq.quantizable(model)
    with progress.stage(f"Observing {len(tensors)} tensors on {samples.where}", len(samples)) as advance:
        seen = observe.observe(model, samples, tensors, batch_size=tools.batch_size, shards=True, progress=advance)
    return _Seen(model, graph_load.sha256(path), seen)


def _scales(seen: _Seen, samples: SampleSet, tools: With, progress: Progress) -> Scales:
    if tools.scales:
        found = scales.load(tools.scales)
        if found.origin.model_sha256 not in ("", seen.model_sha256):
            raise DataError(
                f"{tools.scales} was made for another model ({found.origin.model_sha256[:12]}): calibrate this one"
            )
        return found
    observed = seen.observed
    if tools.calibrator.needs_linear:
        observed = pipeline.second_pass(seen.model, samples, observed, tools.batch_size, progress)
    origin = pipeline.origin_of(tools.calibrator, seen.model_sha256, samples)
    return pipeline.scales_from(seen.model, Plan(), observed, tools.calibrator, origin)


def _opened(path: Path) -> tuple[SampleSet, SampleSet | None]:
    """Return the calibration and the evaluation set of a folder that `build` made, or a set that stands alone."""
    if path.is_dir() and (path / "calibration").is_dir():
        both = path / "evaluation"
        return sets.read(path / "calibration"), sets.read(both) if both.is_dir() else None
    return sets.read(path), None


def _sample(later: Later, calibration: SampleSet, base: Path, folder: Path, progress: Progress) -> SampleSet:
    """Return the later sample as a set, prepared as the calibration set is."""
    source = _source(later.path)
    if source is None:
        samples = _opened(later.path)[0]
        if calibration.preparation and samples.preparation and samples.preparation != calibration.preparation:
            raise DataError(
                f"{later.path} is prepared otherwise than {calibration.where}: build it with the same recipe"
            )
        return samples
    stored = calibration.preparation  # a plain npz has none
    preparer = Preparer.load(stored, base) if stored else Preparer.of({})
    faults: list[str] = []
    with progress.stage(f"Sampling {later.path.name}", later.samples) as advance:
        chosen = heapq.nsmallest(
            later.samples,
            _items(source, faults, later),
            # Not the order of recipes: of the log that a set was built from, that would draw the set itself.
            key=lambda item: select.rank(later.seed, str(item.record["id"]), "later"),
        )

        def prepared() -> Iterator[tuple[str, Inputs, Record]]:
            for item in chosen:
                try:
                    inputs = building.prepared(item, preparer)
                except DataError as error:
                    _leave_out(faults, later, str(error))
                else:
                    yield str(item.record["id"]), inputs, item.record
                advance(1)

        header = {
            "part": "later",
            "group": calibration.group,
            "stratify": list(calibration.stratify),
            "preparation": dict(calibration.preparation),
        }
        result = writing.write(folder, prepared(), header)
    if not faults:
        return result
    count = f"{len(faults)} samples" if len(faults) > 1 else "1 sample"
    return replace(
        result, notes=(f"{later.path.name}: {count} could not be read and left out; the first: {faults[0]}",)
    )


def _leave_out(faults: list[str], later: Later, fault: str) -> None:
    faults.append(fault)
    if len(faults) > later.skip:
        beyond = f" (--skip {later.skip} is used up)" if later.skip else ""
        raise DataError(f"{later.path}: {fault}{beyond}; repair it, or let such samples be left out: --skip N")


def _source(path: Path) -> Iterator[Item | Fault] | None:
    """Return what a log, or the source of a recipe, holds; None for a sample set."""
    if path.suffix == ".toml":
        declared = recipe.load(path)
        stream = sources.open_source(declared.source, declared.options, path.parent).items()
        return islice(stream, declared.limit or None)
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        return sources.open_source("jsonl", {"path": path.name}, path.parent).items()
    return None


def _items(stream: Iterator[Item | Fault], faults: list[str], later: Later) -> Iterator[Item]:
    for item in stream:
        if isinstance(item, Fault):
            _leave_out(faults, later, f"{item.where}: {item.reason}")
        else:
            yield item
