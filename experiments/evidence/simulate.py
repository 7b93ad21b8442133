"""Simulated studies whose true drop is known: how often does the interval cover it, and how often would the gate pass?

The gate's margin is the true drop itself, so that passing is wrong. Beside calib's interval stands SciPy's BCa of the same
samples where it serves (ratios of ungrouped samples), which is what others would use.

    python experiments/evidence/simulate.py --out reports/evidence
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from scipy import stats

from calib import environment
from calib.evidence.difference import difference

Pairs = tuple[np.ndarray, np.ndarray, list[str] | None]


@dataclass(frozen=True)
class Scenario:
    """A kind of study.

    Attributes:
        aggregate: of the score.
        higher_is_better: direction of the score.
        draw: terms of both models, (n, k) each, and groups, of n samples.
        truth: the true difference, model minus FP32.
        text: what it is.
    """

    aggregate: str
    higher_is_better: bool
    draw: Callable[[np.random.Generator, int], Pairs]
    truth: float
    text: str


def accuracy(broken: float, fixed: float) -> Callable[[np.random.Generator, int], Pairs]:
    """FP32 is right in 90 %; a sample breaks or is fixed with these probabilities."""

    def draw(rng: np.random.Generator, n: int) -> Pairs:
        u = rng.random(n)
        was = (u < 0.9).astype(float)
        now = np.where(u < broken, 0.0, np.where(u > 1 - fixed, 1.0, was))
        one = np.ones(n)
        return np.stack([was, one], 1), np.stack([now, one], 1), None

    return draw


def lines(changes: float, per_document: int = 1) -> Callable[[np.random.Generator, int], Pairs]:
    """Text lines of 3 to 29 characters, few edits in FP32; a share changes, 70 % for the worse, by a skewed number of edits.

    With documents of several lines, how often lines change varies by document.
    """

    def draw(rng: np.random.Generator, n: int) -> Pairs:
        length = rng.integers(3, 30, n).astype(float)
        was = np.minimum(rng.poisson(0.3, n), length)
        document = np.arange(n) // per_document
        rate = np.minimum(
            1, changes * (rng.gamma(0.5, 2, document[-1] + 1)[document] if per_document > 1 else np.ones(n))
        )
        more = 1 + rng.poisson(0.3 * np.exp(rng.normal(0, 0.7, n)))
        worse = np.where(rng.random(n) < 0.7, np.minimum(was + more, length), np.maximum(was - more, 0))
        now = np.where(rng.random(n) < rate, worse, was)
        groups = [str(d) for d in document] if per_document > 1 else None
        return np.stack([was, length], 1), np.stack([now, length], 1), groups

    return draw


def scores(noise: float) -> Callable[[np.random.Generator, int], Pairs]:
    """30 % positive, scores normal and one deviation and a half apart; the model adds noise to FP32's score."""

    def draw(rng: np.random.Generator, n: int) -> Pairs:
        label = (rng.random(n) < 0.3).astype(float)
        was = 1.5 * label + rng.normal(size=n)
        return np.stack([label, was], 1), np.stack([label, was + rng.normal(0, noise, n)], 1), None

    return draw


def _ratio_truth(draw: Callable[[np.random.Generator, int], Pairs]) -> float:
    """The difference in six million samples, exact to a hundredth of what is to be seen."""
    totals = np.zeros((2, 2))
    for part in range(30):
        was, now, _ = draw(np.random.default_rng([7, part]), 200_000)
        totals += [was.sum(axis=0), now.sum(axis=0)]
    return float(totals[1, 0] / totals[1, 1] - totals[0, 0] / totals[0, 1])


def _auroc_truth(noise: float) -> float:
    """Binormal: the area is Phi(distance / sqrt(sum of variances)): D. Green, J. Swets, 1966."""
    return float(stats.norm.cdf(1.5 / np.sqrt(2 * (1 + noise**2))) - stats.norm.cdf(1.5 / np.sqrt(2)))


@cache
def scenarios() -> dict[str, Scenario]:
    """Return all scenarios by name."""
    some, few, grouped = lines(0.3), lines(0.05), lines(0.2, per_document=8)
    return {
        "accuracy": Scenario("ratio", True, accuracy(0.03, 0.01), -0.02, "3 % break, 1 % are fixed"),
        "CER": Scenario("ratio", False, some, _ratio_truth(some), "30 % of lines change"),
        "AUROC": Scenario("auroc", True, scores(0.3), _auroc_truth(0.3), "scores with 30 % noise"),
        "accuracy, rare": Scenario("ratio", True, accuracy(0.01, 0.0), -0.01, "1 % break, none is fixed"),
        "CER, rare": Scenario("ratio", False, few, _ratio_truth(few), "5 % of lines change"),
        "CER, documents": Scenario(
            "ratio", False, grouped, _ratio_truth(grouped), "documents of 8 lines that change together"
        ),
    }


def study(name: str, scenario: Scenario, n: int, seed: int) -> list[tuple[bool, bool, float]]:
    """Return (covers, gate passes, width) of calib's interval and, where it serves, of SciPy's."""
    was, now, groups = scenario.draw(np.random.default_rng([seed, n, len(name)]), n)
    found = difference(scenario.aggregate, list(map(tuple, was)), list(map(tuple, now)), groups)
    intervals = [(found.interval.low, found.interval.high)] if found.interval else [(float("nan"), float("nan"))]
    if scenario.aggregate == "ratio" and groups is None:
        intervals.append(_scipy(was, now, seed))
    return [_judge(scenario, low, high) for low, high in intervals]


def _judge(scenario: Scenario, low: float, high: float) -> tuple[bool, bool, float]:
    passes = low > scenario.truth if scenario.higher_is_better else high < scenario.truth
    return bool(low <= scenario.truth <= high), bool(passes), float(high - low)


def _scipy(was: np.ndarray, now: np.ndarray, seed: int) -> tuple[float, float]:
    def statistic(part: np.ndarray, other: np.ndarray, whole: np.ndarray, axis: int = -1) -> np.ndarray:
        return (other.sum(axis=axis) - part.sum(axis=axis)) / whole.sum(axis=axis)

    with np.errstate(all="ignore"):
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = stats.bootstrap(
                (was[:, 0], now[:, 0], was[:, 1]), statistic, paired=True, vectorized=True, n_resamples=2000, batch=200,
                method="BCa", rng=np.random.default_rng(seed),
            ).confidence_interval  # fmt: skip
    # Where no sample changed SciPy has no interval (NaN): a gate that looks at the mean alone would pass.
    low, high = (0.0 if np.isnan(end) else float(end) for end in (found.low, found.high))
    return low, high


def row(arguments: tuple[str, int, int]) -> dict[str, object]:
    """Return one row of the table: a scenario at a number of samples."""
    name, n, studies = arguments
    scenario = scenarios()[name]
    found = [study(name, scenario, n, seed) for seed in range(studies)]
    result: dict[str, object] = {"scenario": name, "n": n, "studies": studies, "truth": scenario.truth}
    for index, who in enumerate(("calib", "scipy")):
        if all(len(one) > index for one in found):
            covers, passes, widths = zip(*(one[index] for one in found), strict=True)
            result[who] = {
                "coverage": float(np.mean(covers)),
                "passes": float(np.mean(passes)),
                "width": float(np.mean(widths)),
            }
    return result


def main() -> None:
    """Simulate, and write the table as JSON and Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=1000)
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    work = [(name, n, chosen.studies) for name in scenarios() for n in (100, 400, 2000)]
    with ProcessPoolExecutor(2) as pool:
        rows = []
        for found in pool.map(row, work):
            rows.append(found)
            print(json.dumps(found), flush=True)
    document = {"environment": environment.describe(), "rows": rows}
    chosen.out.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")
    chosen.out.with_suffix(".md").write_text(_markdown(rows, chosen.studies))


def _markdown(rows: list[dict[str, object]], studies: int) -> str:
    texts = {name: scenario.text for name, scenario in scenarios().items()}
    table = [
        f"| {r['scenario']} | {r['n']} | {r['truth']:+.4f} | {_cell(r['calib'])} | {_cell(r.get('scipy'))} |"
        for r in rows
    ]
    notes = "\n".join(f"- {name}: {text}" for name, text in texts.items())
    return f"""# Does the interval hold, and does the gate?

{studies:,} simulated studies a row, whose true difference is known (`python experiments/evidence/simulate.py --out
reports/evidence`). *Covers*: the 95 % interval holds the true difference. *Passes*: the gate passes a model that is exactly at
the margin, which should happen in 2.5 % of studies. *SciPy*: `scipy.stats.bootstrap`, paired, BCa, on the same samples; it has
neither the t quantiles nor the two added samples.

| scenario | n | true difference | calib: covers, passes, width | SciPy: covers, passes, width |
|:--|--:|--:|:--|:--|
{chr(10).join(table)}

{notes}

With {studies:,} studies a true coverage of 95 % is seen as 93.6 to 96.4 %. Where one sample in 100 changes, no method covers
exactly 95 %: with 100 samples calib's interval errs on the wide side, and the plain bootstrap, which takes what it never saw for
impossible, passes more than a third of the models that it should not. 100 lines in documents of 8 are 13 documents, too few:
there the interval is too short, and calib says so below 30 groups.
"""


def _cell(found: object) -> str:
    if not isinstance(found, dict):
        return "–"
    return f"{found['coverage']:.1%}, {found['passes']:.1%}, {found['width']:.4f}"


if __name__ == "__main__":
    main()
