"""A study's result, made by hand, with hostile names where data or a model gives names."""

from __future__ import annotations

import dataclasses
import io
import math
import random
from pathlib import Path
from typing import Literal

from PIL import Image, ImageDraw

from calib.evidence.power import required
from calib.evidence.result import Bound, Decisions, Difference, Evidence, Interval, Power, SliceEvidence
from calib.study.result import (
    Built,
    Candidate,
    Flip,
    LayerPrecision,
    ModelInfo,
    SetInfo,
    SliceScore,
    StudyResult,
    TensorRange,
)
from calib.study.verdict import decide
from tests import quality_case
from tests.quality_case import IMG

HOSTILE = (IMG, "</script><script>alert(1)</script>", "a|b", "`tick` *star* [x](http://e.example)", "nul\x00\u202eesc")
DEVICES = {"flatbed": 180, "fax": 64, "phone": 96, "thermal": 24}
# name, kind, delta, half width, agreement, broken, fixed
CANDIDATES = (
    ("fp32", "baseline", 0.0, 0.0, 1.0, 0, 0),
    ("fp16", "reference", 0.0001, 0.0003, 0.994, 1, 1),
    ("max", "candidate", 0.0251, 0.0072, 0.842, 41, 5),
    ("percentile-99.99", "candidate", 0.0118, 0.0046, 0.901, 24, 6),
    ("percentile-99.999", "candidate", 0.0064, 0.0032, 0.924, 18, 7),
    ("mse", "candidate", 0.0021, 0.0019, 0.951, 14, 8),
    ("entropy", "candidate", 0.0047, 0.0028, 0.937, 14, 7),
    ("noise-max", "control", 0.4120, 0.031, 0.214, 260, 0),
    ("noise-mse", "control", 0.0330, 0.0080, 0.803, 52, 4),
)
# kind, name, samples, FP32, delta, half width, p, adjusted, verdict
SLICES = (
    ("column", "device = fax", 64, 0.0350, 0.0210, 0.0140, 0.0004, 0.0060, "worse"),
    ("column", "device = thermal", 24, 0.0220, 0.0190, 0.0390, None, None, "too few"),
    ("column", f"la<b>el| = {IMG}", 71, 0.0180, 0.0041, 0.0037, 0.0021, 0.0294, "slightly worse"),
    ("column", "device = phone", 96, 0.0180, 0.0035, 0.0039, 0.0410, 0.4920, "open"),
    ("column", "device = flatbed", 180, 0.0080, 0.0010, 0.0021, 0.2100, 1.0, "within"),
    ("pair", f"device = fax, la<b>el| = {IMG}", 40, 0.0410, 0.0312, 0.0221, 0.0012, 0.0180, "worse"),
    ("pair", "device = phone, kind = `letter` *x*", 51, 0.0201, -0.0012, 0.0051, 0.7400, 1.0, "open"),
    ("class", HOSTILE[1], 88, 0.0141, 0.0003, 0.0029, 0.4400, 1.0, "within"),
    ("region", "x: edges < 0.03", 47, 0.0370, 0.0185, 0.0119, 0.0009, 0.0144, "worse"),
)  # fmt: skip


def difference(
    delta: float, half: float, *, samples: int = 364, groups: int = 88, baseline: float = 0.0157, level: float = 0.95
) -> Difference:
    """Return a difference whose interval is a little longer on the upper side."""
    interval = Interval(delta - half, delta + 1.3 * half, level)
    return Difference(samples, groups, 22, baseline, baseline + delta, delta, interval, half / 1.8, "")


def no_interval(why: str, *, samples: int = 364, groups: int = 88, baseline: float = 0.0157) -> Difference:
    """Return a difference without an interval."""
    return Difference(samples, groups, 0, baseline, baseline, 0.0, None, 0.0, why)


def evidence(*, shown: Literal["within", "beyond", "open"] = "within", worse: bool = True) -> Evidence:
    """Return what is known of mse, chosen from five, against a margin of 0.005; it may be worse on some slices."""
    drop, half = {"within": (0.0021, 0.0019), "beyond": (0.0126, 0.0055), "open": (0.0040, 0.0035)}[shown]
    rows = [row for row in SLICES if worse or row[-1] != "worse"]
    return Evidence(
        candidate="mse", metric="cer", aggregate="ratio", higher_is_better=False, overall=difference(drop, half),
        bound=Bound(0.005, drop, drop - 1.3 * half, drop + 1.5 * half, 0.99, 5, shown),
        decisions=Decisions(310, 14, 8, 32, 0.286), p_value=0.021, power=_power(0.005, drop, half / 1.8),
        slices=tuple(map(_slice, rows)), tested=sum(row[7] is not None for row in rows),
        notes=(f"{IMG} has no cer: the right answers are empty", "2 columns with more than 50 values were not sliced by"),
    )  # fmt: skip


def _power(margin: float, drop: float, error: float) -> Power:
    deviation = error * math.sqrt(88)
    seen = required(margin, drop, deviation, level=0.99)
    return Power(0.8, 3.4174 * error, required(margin, 0.0, deviation, level=0.99), seen, 88)


def _slice(row: tuple[str, str, int, float, float, float, float | None, float | None, str]) -> SliceEvidence:
    kind, name, samples, baseline, delta, half, p_value, adjusted, verdict = row
    found = difference(delta, half, samples=samples, groups=max(2, samples // 4), baseline=baseline)
    return SliceEvidence(kind, name, found, p_value, adjusted, verdict)  # type: ignore[arg-type]


def _slices(delta: float, half: float, *, baseline: bool) -> dict[str, dict[str, SliceScore]]:
    weight = {"flatbed": 0.5, "fax": 2.1, "phone": 1.2, "thermal": 1.0}
    level = {"flatbed": 0.008, "fax": 0.035, "phone": 0.018, "thermal": 0.022}
    scores = {}
    for device, samples in DEVICES.items():
        shift = delta * weight[device]
        wide = half * (360 / samples) ** 0.5
        interval = None if baseline else Interval(shift - wide, shift + wide, 0.95)
        scores[device] = SliceScore(samples, level[device] + shift, shift, interval)
    return {"device": scores, "la<b>el|": {IMG: scores["fax"]}}


def _candidate(row: tuple[str, str, float, float, float, int, int]) -> Candidate:
    name, kind, delta, half, agreement, broken, fixed = row
    baseline, quantized = kind == "baseline", kind in ("candidate", "control")
    return Candidate(
        name=name, kind=kind, calibrator=name.removeprefix("noise-") if quantized else "",  # type: ignore[arg-type]
        int8_layers=51 if quantized else 0, total_layers=51,
        size_bytes=3_012_400 if quantized else 10_857_958 if baseline else 5_431_000, sha256=f"{len(name):064x}",
        metrics={"cer": 0.0157 + delta, "exact_match": 0.89 - 3 * delta},
        delta=delta, interval=None if baseline else Interval(delta - half, delta + half * 1.3, 0.95),
        slices=_slices(delta, half, baseline=baseline), agreement=agreement, broken=broken, fixed=fixed, seconds=12.3,
    )  # fmt: skip


def _tensor(index: int, name: str) -> TensorRange:
    amax = 2.0 ** (index + 1.3)
    edges = tuple(-20 + k / 8 for k in range(int((20 + index + 1.5) * 8) + 1))
    middle = -2.5 + index / 2
    raw = [2.0 ** (-abs(e - middle) * (1.1 if e < middle else 3.2 - index * 0.3)) for e in edges[:-1]]
    kept = {"max": 1.0, "percentile-99.99": 0.31, "percentile-99.999": 0.55, "mse": 0.52, "entropy": 0.22,
            "noise-max": 0.02, "noise-mse": 0.018}  # fmt: skip
    return TensorRange(
        tensor=name, consumers=("Conv.12", IMG), amax=amax, edges_log2=edges, share=tuple(r / sum(raw) for r in raw),
        zeros=0.183, thresholds={k: amax * v for k, v in kept.items()},
        clipped={k: 0.0 if v == 1 else 1e-6 / v**3 for k, v in kept.items()},
        sqnr_db={k: 34 - 20 * abs(v - 0.5) - index for k, v in kept.items()},
    )  # fmt: skip


def _flips(folder: Path) -> tuple[Flip, ...]:
    words = ("Patient No. 20417", "Rechnungsbetrag 1.249,00", "Amoxicillin 500 mg", "Lot  77A-09/B", "合計 ￥1,280")
    (folder / "samples").mkdir(parents=True, exist_ok=True)
    generator = random.Random(3)
    flips = []
    for index in range(20):
        target = words[index % 5] if index % 4 else HOSTILE[index // 4 % len(HOSTILE)]
        wrong = target.replace("0", "O", 1).replace("i", "l", 1)[: len(target) - generator.randrange(2)]
        wrong += "x"[: index % 2]
        kind: Literal["broken", "fixed"] = "fixed" if index >= 14 else "broken"
        image = Image.new("L", (320, 48), 235)
        ImageDraw.Draw(image).text((8, 14), "".join(c for c in target if 31 < ord(c) < 127), fill=30, font_size=22)
        buffer = io.BytesIO()
        image.save(buffer, "PNG")
        path = folder / "samples" / f"{index}.png"
        path.write_bytes(buffer.getvalue())
        flips.append(
            Flip(
                candidate="mse", kind=kind, sample=f"{IMG if index == 8 else 'line'}-{index:04d}",
                lost=None if index == 13 else (-1 if kind == "fixed" else 1) * (6.25 - 0.25 * index),
                metadata={"device": list(DEVICES)[index % 4], "operator": f"SECRETNAME{index}"}, target=target,
                baseline_prediction=target if kind == "broken" else wrong,
                prediction=wrong if kind == "broken" else target, image=f"samples/{index}.png",
            )
        )  # fmt: skip
    return tuple(flips)


def study(folder: Path, found: Evidence | None = None) -> StudyResult:
    """Build a plausible result with the verdict that follows; the images of its flips go to `folder`."""
    found = found or evidence()
    same = {"delta": found.overall.delta, "interval": found.overall.interval}
    candidates = tuple(
        dataclasses.replace(c, **same) if c.name == found.candidate else c for c in map(_candidate, CANDIDATES)
    )
    verdict = decide(candidates, found, kept_in_float=0)
    names = ("/backbone/stage2/blocks.3/act/Mul_output_0", f"t {IMG}", "a|b `c` $x$ \x01", "conv2d_41.w_0_" + "x" * 120,
             "/neck/Add_3_output_0", "softmax")  # fmt: skip
    return StudyResult(
        name="ppocr-latin-int8", description=f"Does INT8 keep the reader usable on faxes? {IMG} " + HOSTILE[1],
        created="2025-11-30T17:04:00Z", run="20251130T170400-1f3a9c", command="calib run experiments/ppocr.toml\n# ```",
        model=ModelInfo(
            source="package:rapidocr-onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx", sha256="ab" * 32,
            size_bytes=10_857_958, opset=11, normalized_opset=17, inputs={"x": "float32[N, 3, 48, W]"},
            outputs={"softmax_11.tmp_0": "float32[N, T, 6625]"}, parameters=2_690_000,
            layers={"Conv": 38, "MatMul": 13}, normalization=("Moved 214 Constant nodes to initializers.", IMG),
            normalization_max_error=1.2e-6,
        ),
        recipe="datasets/latin-lines.toml",
        calibration=SetInfo(128, "cd" * 32, {"flatbed": 64, "fax": 20, "phone": 44}, 31),
        evaluation=SetInfo(364, "ef" * 32, DEVICES, 88),
        budget_metric="cer", higher_is_better={"cer": False, "exact_match": True}, max_drop=0.005,
        runtime="ONNX Runtime 1.23, Q/DQ as written",
        candidates=candidates, evidence=found,
        tensors=tuple(_tensor(i, name) for i, name in enumerate(names)), flips=_flips(folder),
        precision=(
            LayerPrecision("p2o.Conv.0", "Conv", "int8", "int8", ""), LayerPrecision(IMG, "MatMul", "fp16", "fp16", HOSTILE[1])),
        quality=quality_case.quality(),
        built=Built("TensorRT-RTX 1.7.1", 2.5, 109, 86, 1, 1),
        verdict=dataclasses.replace(verdict, reasons=(*verdict.reasons, IMG)),
        include_samples=True, seconds={"data": 3.1, "observe": 11.8, "calibrate": 1.2, "evaluate": 96.4},
        environment={"python": "3.11.2", "onnxruntime": "1.23.0", "cpu": IMG},
        notes=("Used 128 of 128 calibration samples.", "| --- |", HOSTILE[1]), tracking_uri="http://mlflow.local:5000",
    )  # fmt: skip
