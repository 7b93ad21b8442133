"""The best candidates of two runs on the samples that both evaluated, paired by what the samples hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from calib.comparing import words
from calib.comparing.loading import Run
from calib.comparing.result import Scores
from calib.evaluate import Evaluation
from calib.evidence.difference import difference
from calib.evidence.result import Decisions, Difference
from calib.evidence.tests import decisions

_LEVEL = 0.95


def compare(before: Run, after: Run) -> Scores:
    """Compare the budget's score of the best candidates, and of the FP32 models, on the same samples.

    The interval takes the groups of the later evaluation set whole. Nothing is compared, and a sentence says why, where no
    sample is in both runs, or the score has another name, meaning or direction.
    """
    metric = after.result.budget_metric
    up = after.result.evidence.higher_is_better
    first, second, relabelled = _paired(before, after)
    why = _why_not(before, after, metric, len(first))
    best: Difference | None = None
    fp32: Difference | None = None
    right_and_wrong: Decisions | None = None
    if not why:
        groups = after.evaluation.groups()
        chosen = [groups[position] for position in second] if groups else None
        level = after.result.evidence.overall.interval.level if after.result.evidence.overall.interval else _LEVEL
        best, fp32 = (
            difference(two.aggregates[metric], _terms(one, metric, first), _terms(two, metric, second), chosen, level)
            for one, two in ((before.best_scores, after.best_scores), (before.fp32_scores, after.fp32_scores))
        )
        right_and_wrong = decisions(_right(before.best_scores, first), _right(after.best_scores, second))
    found = Scores(
        metric="" if why else metric,
        higher_is_better=up,
        margin=after.result.max_drop,
        before=len(before.evaluation),
        after=len(after.evaluation),
        compared=len(first),
        relabelled=relabelled,
        best=best,
        decisions=right_and_wrong,
        fp32=fp32,
        outcome="not compared" if best is None else words.outcome(best, higher_is_better=up),
        sentences=(why,),
    )
    return found if why else replace(found, sentences=words.sentences(found))


def _paired(before: Run, after: Run) -> tuple[list[int], list[int], int]:
    """Return the positions of the samples of both runs, and how many more are in both with another right answer.

    A sample that a set holds several times is paired as often as both hold it.
    """
    labelled = bool(before.evaluation.target and after.evaluation.target)
    first, second = (_keys(run, labelled=labelled) for run in (before, after))
    known = {key: position for position, key in enumerate(first)}
    pairs = [(known[key], position) for position, key in enumerate(second) if key in known]
    shared = (Counter(before.best_scores.digests) & Counter(after.best_scores.digests)).total()
    return [one for one, _ in pairs], [two for _, two in pairs], shared - len(pairs)


def _keys(run: Run, *, labelled: bool) -> list[tuple[str, str, int]]:
    samples = run.evaluation
    answers = samples.column(samples.target) if labelled else [""] * len(samples)
    seen: Counter[tuple[str, str]] = Counter()
    keys = []
    for entry, answer in zip(samples.entries, answers, strict=True):
        keys.append((entry.sha256, answer, seen[entry.sha256, answer]))
        seen[entry.sha256, answer] += 1
    return keys


def _why_not(before: Run, after: Run, metric: str, shared: int) -> str:
    """Return why nothing can be compared; "" where it can."""
    if not shared:
        return "the runs evaluated no sample in common, so their scores cannot be compared sample by sample"
    for name, run in (("before", before), ("after", after)):
        if metric not in run.best_scores.aggregates or metric not in run.fp32_scores.aggregates:
            known = ", ".join(run.best_scores.aggregates)
            return f"the run {name} has no score {metric}, only {known}: the runs are judged by other scores"
    one, two = before.best_scores, after.best_scores
    if one.higher_is_better[metric] != two.higher_is_better[metric]:
        return f"{metric} counts as better when higher in one run and when lower in the other: it is not the same score"
    if one.aggregates[metric] != two.aggregates[metric]:
        return (
            f"{metric} is another score in each run: a set's value is a {one.aggregates[metric]} before and a "
            f"{two.aggregates[metric]} after"
        )
    return ""


def _terms(found: Evaluation, metric: str, positions: Sequence[int]) -> list[tuple[float, ...]]:
    return [found.samples[position].values[metric] for position in positions]


def _right(found: Evaluation, positions: Sequence[int]) -> npt.NDArray[np.bool_] | None:
    right = found.right()
    return None if right is None else right[np.asarray(positions)]
