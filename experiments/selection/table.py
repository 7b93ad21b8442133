"""From the measurements to reports/selection.md: what is seen, and how sure that is."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import numpy as np
from matplotlib import pyplot
from measure import CALIBRATORS, SCORED, SEEDS, SELECTIONS, SIZES

RESAMPLES = 10_000


def interval(deltas: np.ndarray, characters: np.ndarray, documents: list[str]) -> tuple[float, float]:
    """95 % percentile interval of sum(deltas) / sum(characters); whole documents are drawn."""
    _, index = np.unique(documents, return_inverse=True)
    sums = np.zeros((index.max() + 1, 2))
    np.add.at(sums, index, np.stack([deltas, characters], axis=1))
    weights = np.random.default_rng(0).multinomial(len(sums), np.full(len(sums), 1 / len(sums)), RESAMPLES)
    totals = weights @ sums
    return tuple(np.percentile(totals[:, 0] / totals[:, 1], [2.5, 97.5]))


class Measured:
    def __init__(self, path: Path) -> None:
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        self.rows: dict[str, Any] = {line["key"]: line for line in lines}
        fp32 = self.rows["fp32"]
        self.documents = fp32["documents"]
        self.fp32, self.characters = np.asarray(fp32["edits"]).T

    def edits(self, name: str, size: int) -> np.ndarray:
        """[seeds, lines]"""
        found = [self.rows.get(f"{name}/{size}/{seed}") for seed in SEEDS]
        return np.asarray([np.asarray(row["edits"])[:, 0] for row in found if row])

    def cer(self, edits: np.ndarray) -> np.ndarray:
        return edits.sum(axis=-1) / self.characters.sum()

    def spread(self, name: str, size: int, calibrator: str) -> np.ndarray:
        """Relative standard deviation of every tensor's scale over the seeds."""
        rows = [self.rows[f"{name}/{size}/{seed}"]["scales"][calibrator] for seed in SEEDS]
        values = np.log([[row[tensor] for tensor in rows[0]] for row in rows])
        return np.std(values, axis=0, ddof=1)

    def predicted(self, size: int, calibrator: str) -> np.ndarray:
        rows = [self.rows[f"random/{size}/{seed}"]["predicted"][calibrator] for seed in SEEDS]
        tensors = self.rows[f"random/{size}/0"]["scales"][calibrator]
        return np.asarray([[row[tensor] for tensor in tensors] for row in rows]).mean(axis=0)


def cer_table(measured: Measured) -> list[str]:
    lines = [
        "| selection | N | CER, mean of 5 sets | least to largest set | minus FP32, 95 % interval | minus random of the same N, 95 % interval |",
        "|:--|--:|--:|--:|--:|--:|",
    ]
    for size in SIZES:
        random = measured.edits("random", size)
        for name in (*SELECTIONS, "noise"):
            edits = measured.edits(name, size)
            each, mean = measured.cer(edits), edits.mean(axis=0)
            delta = mean - measured.fp32
            low, high = interval(delta, measured.characters, measured.documents)
            against = "–"
            if name != "random":
                other = mean - random.mean(axis=0)
                between = interval(other, measured.characters, measured.documents)
                against = f"{measured.cer(other):+.4f}, {between[0]:+.4f} to {between[1]:+.4f}"
            label = "uniform noise (control, 1 set)" if name == "noise" else name
            lines.append(
                f"| {label} | {size} | {each.mean():.4f} | {each.min():.4f} to {each.max():.4f} | "
                f"{measured.cer(delta):+.4f}, {low:+.4f} to {high:+.4f} | {against} |"
            )
    return lines


def spread_table(measured: Measured) -> list[str]:
    lines = [
        "| selection | N | " + " | ".join(f"{c}: median, worst tensor" for c in CALIBRATORS) + " |",
        "|:--|--:|" + "--:|" * len(CALIBRATORS),
    ]
    for size in SIZES:
        for name in SELECTIONS:
            cells = [measured.spread(name, size, calibrator) for calibrator in CALIBRATORS]
            row = " | ".join(f"{np.median(cell):.1%}, {cell.max():.0%}" for cell in cells)
            lines.append(f"| {name} | {size} | {row} |")
    return lines


def prediction_table(measured: Measured) -> list[str]:
    lines = [
        "| calibrator | N | predicted from one set: median tensor | seen between sets: median tensor | tensors within the prediction |",
        "|:--|--:|--:|--:|--:|",
    ]
    for calibrator in CALIBRATORS:
        for size in SIZES:
            predicted, seen = measured.predicted(size, calibrator), 1.96 * measured.spread("random", size, calibrator)
            lines.append(
                f"| {calibrator} | {size} | {np.median(predicted):.1%} | {np.median(seen):.1%} | {np.mean(seen <= predicted):.0%} |"
            )
    return lines


def left_out_table(measured: Measured) -> list[str]:
    lines = [
        "| left out | calibrator | worst slice, by coverage | its worst tensor | clipped there, values | samples hit | named as uncovered |",
        "|:--|:--|:--|:--|--:|--:|:--|",
    ]
    for key, row in measured.rows.items():
        if not key.startswith("without/"):
            continue
        for calibrator in CALIBRATORS:
            found = row["coverage"][calibrator]
            value, tensor, share, hit, overshoot = found["slices"][0]
            lines.append(
                f"| {key.partition('/')[2]} | {calibrator} | {value} | `{tensor}` (up to {overshoot:.2f} times the threshold) | "
                f"{share:.3%} | {hit:.0%} | {', '.join(found['uncovered']) or 'none'} |"
            )
    return lines


def draw(measured: Measured, path: Path) -> None:
    matplotlib.rcParams.update({"svg.hashsalt": "calib", "svg.fonttype": "none", "font.size": 9})
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    marks = dict(zip(SELECTIONS, "osD^v", strict=True))
    for index, (name, mark) in enumerate(marks.items()):
        for at, size in enumerate(SIZES):
            each = measured.cer(measured.edits(name, size))
            x = at + (index - 2) * 0.14
            axes[0].plot([x, x], [each.min(), each.max()], color=f"C{index}", linewidth=1.2)
            axes[0].plot([x], [each.mean()], mark, color=f"C{index}", markersize=5, label=name if at == 0 else None)
        middle = [np.median(measured.spread(name, size, SCORED)) * 100 for size in SIZES]
        axes[1].plot(range(len(SIZES)), middle, mark + "-", color=f"C{index}", markersize=5, linewidth=1)
    fp32 = measured.cer(measured.fp32)
    axes[0].axhline(fp32, color="black", linewidth=0.8)
    axes[0].annotate("FP32", (len(SIZES) - 0.6, fp32), (0, 3), textcoords="offset points", ha="right", fontsize=8)
    for axis, title in zip(
        axes, ("CER (mark: mean of 5 sets, bar: least to largest)", "scales' spread over 5 sets, %"), strict=True
    ):
        axis.set_xticks(range(len(SIZES)), [f"N = {size}" for size in SIZES])
        axis.set_title(title, fontsize=9, loc="left")
        axis.set_ylim(bottom=0)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False, fontsize=8, ncols=2)
    figure.savefig(path, metadata={"Date": None})


TEXT = """# Does it matter how calibration samples are chosen?

PP-OCRv4 recognizer on laboratory report lines (`datasets/lab-reports.md`), all planned layers in INT8 with {scored} scales, FP32
rest. Every set is scored on the same 400 lines; no document of theirs gives a calibration line. Five sets (seeds) for each selection
and size. Made by `make selection` (measurements: [selection.jsonl](selection.jsonl)); intervals draw whole documents, 10,000 times,
on the mean of the five sets, so they are about the evaluation lines; "least to largest" is about the sets.

![CER and spread](selection.svg)

{seen}

## CER

FP32: {fp32:.4f}.

{cer}

## How much scales differ between sets of the same kind

Standard deviation of the logarithm over five sets, of the median and of the worst tensor.

{spread}

## What `calib data check` predicts from one set, and what five sets show

Predicted: how far (95 %) a scale is expected to be from that of endless data, from the blocks of one set. Seen: 1.96 standard
deviations between five sets. With five sets the seen value is itself rough.

{prediction}

## One device left out of the calibration set (N = 256)

{left_out}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("measurements", type=Path)
    parser.add_argument(
        "--seen", type=Path, default=Path(__file__).with_name("seen.md"), help="what a person saw in it"
    )
    parser.add_argument("--out", type=Path, default=Path("reports/selection"))
    arguments = parser.parse_args()
    measured = Measured(arguments.measurements)
    draw(measured, arguments.out.with_suffix(".svg"))
    text = TEXT.format(
        scored=SCORED,
        seen=arguments.seen.read_text().strip(),
        fp32=measured.cer(measured.fp32),
        cer="\n".join(cer_table(measured)),
        spread="\n".join(spread_table(measured)),
        prediction="\n".join(prediction_table(measured)),
        left_out="\n".join(left_out_table(measured)),
    )
    arguments.out.with_suffix(".md").write_text(text)


if __name__ == "__main__":
    main()
