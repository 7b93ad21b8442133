"""A judgement of a calibration set, made by hand, with hostile names where data gives names."""

from __future__ import annotations

from collections.abc import Sequence

from calib.quality.result import (
    Classifier,
    Clip,
    Comparison,
    Coverage,
    Curve,
    Drift,
    Duplicate,
    Duplicates,
    Quality,
    ScaleDifference,
    Shift,
    Sufficiency,
    Tail,
)

IMG = "<img src=x onerror=alert(1)>"
MARKUP = "[red]a|b[/red] `c` $x$ \x01"
NAMES = (f"/act/{IMG}", MARKUP, "/neck/Add_3_output_0", "conv2d_41.w_0_" + "x" * 120, "softmax", "x")
DEVICES = {"thermal": 24, "fax": 64, "phone": 96, "flatbed": 180}


def names(count: int) -> tuple[str, ...]:
    """Return names of so many tensors."""
    return NAMES[:count] + tuple(f"/backbone/blocks.{i}/conv/Conv_output_0" for i in range(count - len(NAMES)))


def sufficiency(
    tensors: int = 30, sizes: Sequence[int] = (8, 16, 32, 64, 128), *, worst: float = 0.034, known: bool = True
) -> Sufficiency:
    """Return scales that settle as means do; the worst is off by `worst` with all samples."""
    curves = []
    for i, tensor in enumerate(names(tensors)):
        last = worst * 0.7**i
        off = tuple(last * (sizes[-1] / n) ** 0.5 for n in sizes)
        enough = next((n for n, value in zip(sizes, off, strict=True) if value <= 0.01), None)
        amax = [min(4 * value, 0.9) for value in off]
        curves.append(
            Curve(
                tensor, 0.0123 * (i + 1), 1.56 * (i + 1), tuple(1 - min(v, 1) for v in off), tuple(1 + v for v in off),
                tuple(1 - a for a in amax), tuple(1 + a / 2 for a in amax), off, 0.4 * last, enough,
            )
        )  # fmt: skip
    fits = [n for i, n in enumerate(sizes) if max(curve.deviation[i] for curve in curves) <= 0.01]
    enough = fits[0] if fits else None
    estimate = round(sizes[-1] * (worst / 0.01) ** 2) if enough is None and known else None
    return Sufficiency("mse", 0.01, 16, tuple(sizes), tuple(curves), enough, estimate, f"judged with {IMG}")


def coverage(scales: str = "mse", tensors: int = 30, *, slices: bool = True, missing: bool = True) -> Coverage:
    """Return what scales clip, most of a device that calibration lacks."""
    every = names(tensors)

    def clip(index: int, column: str, value: str, samples: int, share: float, unusual: float) -> Clip:
        return Clip(every[index % tensors], column, value, samples, share, min(1.0, 50 * share), unusual,
                    0.8 + 900 * share, None if scales == "max" else 3e-5)  # fmt: skip

    found = (
        clip(0, "device", "thermal", DEVICES["thermal"], 0.012, 0.62),
        clip(0, "la<b>el|", IMG, 64, 0.0041, 0.36),
        clip(1, "device", "fax", DEVICES["fax"], 0.0003, 0.08),
        clip(2, "device", "phone", DEVICES["phone"], 2e-5, 0.05),
        clip(2, "device", "flatbed", DEVICES["flatbed"], 0.0, 0.0),
    )
    worst = (*found[:2], clip(1, "device", "thermal", 24, 0.004, 0.3), clip(2, "device", "thermal", 24, 0.0009, 0.2))
    return Coverage(
        scales, 364, 2.1e-5, tuple(clip(i, "", "", 364, 0.0008 * 0.6**i, 0.07) for i in range(tensors)),
        found if slices else (), worst if slices else (), ("device = thermal",) if slices and missing else (), "evaluation",
    )  # fmt: skip


def drift(other: str = "evaluation", tensors: int = 30, *, beyond: bool = True, detectable: float = 0.2) -> Drift:
    """Return shifts that fall off; with `beyond` the first are beyond the limit."""
    shifts = []
    for i, tensor in enumerate(names(tensors)):
        effect = (0.62 if beyond else 0.21) * 0.75**i * (-1) ** i
        tail = min(1.0, abs(effect) * 1.5)
        p = 0.001 if abs(effect) > 0.3 else 0.4
        side = "upper" if effect > 0 else "lower"
        shifts.append(
            Shift(tensor, "input" if tensor == "x" else "activation", "amax" if i % 2 else "mean", effect, 2.0**effect, p,
                  Tail(side, 0.04, 0.2, tail, p))
        )  # fmt: skip
    told = Classifier(0.81 if beyond else 0.05, 0.0005 if beyond else 0.55, (f"{NAMES[0]}: mean |x|", f"{MARKUP}: largest |x|"),
                      Tail("upper", 0.02, 0.22, 0.83 if beyond else 0.1, 0.0005 if beyond else 0.7))  # fmt: skip
    reasons = (f"activation {NAMES[0]}: its mean |x| is typically 1.54 times the calibration set's; Cliff's delta +0.62, p 0.001",
               "a classifier tells the samples apart: AUC 0.9 on samples that it was not trained on, p 0.0005")  # fmt: skip
    return Drift(other, (128, 364), (31, 88), 0.33, 0.01, tuple(shifts), told, beyond, reasons if beyond else (),
                 detectable, (f"note {IMG}",))  # fmt: skip


def quality() -> Quality:
    """Return a judgement that finds something wrong everywhere."""
    pairs = (
        Duplicate("line-0007", f"line-{IMG}", "exact", 1.0),
        *(Duplicate(f"line-{i:04d}", MARKUP, "near", 0.97) for i in range(12)),
    )
    return Quality(
        128, sufficiency(), (coverage("max"), coverage("mse"), coverage("entropy")),
        (drift(), drift(f"log {IMG}", beyond=False)), (Duplicates("evaluation", 1, 14, pairs, f"hash {IMG}"),),
        (f"evaluation: {IMG}",),
    )  # fmt: skip


def good() -> Quality:
    """Return a judgement that finds nothing wrong."""
    return Quality(
        128, sufficiency(worst=0.004), (coverage(slices=False),), (drift(beyond=False),),
        (Duplicates("evaluation", 0, 0, (), "sha256"),), (),
    )  # fmt: skip


def comparison() -> Comparison:
    """Return two sets, of which the second clips less."""
    differences = tuple(
        ScaleDifference(
            tensor, 0.012, 0.012 * (1 + 0.3 * 0.6**i), 1 + 0.3 * 0.6**i, 0.04, 0.0004 * 0.5**i, 0.0001 * 0.5**i
        )
        for i, tensor in enumerate(names(30))
    )
    return Comparison("mse", f"random {IMG}", MARKUP, differences, 4, 364, 3e-5, 1e-5, "second")
