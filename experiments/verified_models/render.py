"""The rows as Markdown that reads well on GitHub."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from measure import Row

_INTRODUCTION = """\
# Verified models

Made by `make models`. Each model is quantized as a user would do it: MSE scales, the default plan, weights stored as
INT8, and what is not INT8 in FP16 where that is safe. {builder} builds it, and `calib verify` reads from the
built engine what each layer runs in.
"""

_NOTES = """\
- **layers** are all Conv, ConvTranspose, Gemm and MatMul on data. **INT8 built / asked**: those that the engine computes in
  INT8, of those that the model asks for.
- **kernels**: what TensorRT builds, without waits and shape arithmetic. FP32 and FP16 are the same normalized graph with
  every layer in that type. A layer in INT8 is a kernel of its own, and mostly another one scales, activates and quantizes
  its output; in float both are one. So INT8 has more kernels, with less to compute and to move. What that is in
  milliseconds, this table does not say.
- **MB**: the file as it is published or exported, and the INT8 file.
- **cosine, SQNR**: the output against that of the FP32 model, both in ONNX Runtime with Q/DQ as written, on samples that did
  not calibrate: their mean (cosine) or all together (SQNR), and in parentheses the worst sample. FP16 is the model without
  INT8: where INT8 is far from FP32 and FP16 is not, the layers in INT8 are the reason. How near an output is does not say
  what it costs in the model's own metric.
"""


def markdown(rows: Sequence[Row], versions: Mapping[str, str]) -> str:
    """Return the table, what it rests on, and the versions."""
    builders = ", ".join(sorted({row.verified.builder for row in rows}))
    header = (
        *("model", "layers", "INT8 built / asked", "kernels FP32 / FP16 / INT8", "nodes in FP32"),
        *("MB FP32 → INT8", "cosine FP16", "cosine INT8", "SQNR dB INT8"),
    )
    parts = [
        _INTRODUCTION.format(builder=builders),
        _table(header, "lrrrrrrrr", [_main(row) for row in rows]),
        _NOTES,
        "## What they read\n",
        _table(("model", "from", "inputs", "calibrated / scored", "built for"), "lllrl", [_data(row) for row in rows]),
        "## Left in float\n",
        _table(("model", "layers", "why"), "lrl", list(_left(rows))),
        "## Kept in FP32\n\nNodes that FP16 would break, with casts around them.\n",
        _table(("model", "nodes", "why (of the first)"), "lrl", list(_kept(rows))),
        "## Versions\n",
        ", ".join(f"{name} {version}" for name, version in versions.items()) + "\n",
    ]
    return "\n".join(parts)


def _main(row: Row) -> tuple[str, ...]:
    built, size, close = row.verified, row.megabytes, row.closeness["int8"]
    return (
        row.name,
        str(row.layers),
        f"{built.built} / {built.asked}",
        " / ".join(str(built.kernels[kind]) for kind in ("fp32", "fp16", "int8")),
        str(len(row.kept)),
        f"{size['fp32']:.1f} → {size['int8']:.1f} ({size['int8'] / size['fp32']:.0%})",
        f"{row.closeness['fp16'].cosine:.5f}",
        f"{close.cosine:.4f} ({close.worst_cosine:.4f})",
        f"{close.sqnr_db:.1f} ({close.worst_sqnr_db:.1f})",
    )


def _data(row: Row) -> tuple[str, ...]:
    shapes = "<br>".join(f"`{name}` {shape.replace(',', ', ')}" for name, shape in row.verified.profile.items())
    return row.name, row.source, row.inputs, f"{row.samples['calibrated']} / {row.samples['scored']}", shapes


def _left(rows: Iterable[Row]) -> Iterable[tuple[str, ...]]:
    for row in rows:
        for reason, count in Counter(row.left.values()).items():
            yield row.name, str(count), reason


def _kept(rows: Iterable[Row]) -> Iterable[tuple[str, ...]]:
    for row in rows:
        if row.kept:
            node, reason = next(iter(row.kept.items()))
            yield row.name, str(len(row.kept)), f"`{node}`: {reason}"


def _table(header: Sequence[str], aligned: str, rows: Sequence[Sequence[str]]) -> str:
    rule = ["---:" if side == "r" else "---" for side in aligned]
    lines = [header, rule, *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
