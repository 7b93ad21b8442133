"""The contract of a metric, for the tests of your own: `check` says what is wrong with it before a study does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from calib import aggregates
from calib.metrics.base import Agreement, Metric, Outputs, SampleScore, aggregates_of

_SEED = 0
_RELATIVE, _ABSOLUTE = 1e-6, 1e-9  # what another batch may change: the order of additions in a library

Call = Callable[[npt.NDArray[np.int64]], Sequence[SampleScore]]


def check(metric: Metric | Agreement, outputs: Outputs, targets: Sequence[str] = ()) -> None:
    """Hold a metric to what `calib` relies on.

    - It has scores with a direction and known aggregates, and gives each sample one SampleScore with just these scores, of terms
      that the aggregate can take, always with or always without `right`, and a finite margin or None.
    - Neither the batches nor the order of the samples change a sample's score, the same call gives the same scores again, and
      the outputs are left as they were.
    - The set's values are defined.
    - An Agreement finds nothing better than FP32's own outputs, and nothing wrong with them.

    Args:
        metric: a Metric or an Agreement.
        outputs: of a model on some samples, [n, ...] each, n >= 2; good and bad ones.
        targets: the n right answers; an Agreement has none.

    Raises:
        AssertionError: it breaks the contract; the message says how.
        CalibError: the metric refuses the outputs or the right answers.
    """
    _expect(
        isinstance(metric, Metric) != isinstance(metric, Agreement),
        f"{type(metric).__name__} must have higher_is_better and either score(outputs, targets) or compare(outputs, reference)",
    )
    kinds = _kinds(metric)
    counts = {len(array) for array in outputs.values()}
    count = max(counts, default=0)
    _expect(
        counts == {count} and count > 1, f"give outputs [n, ...] of the same n >= 2 samples, not of {sorted(counts)}"
    )
    if isinstance(metric, Agreement):
        _check_calls(
            lambda rows: metric.compare(_rows(outputs, rows), _rows(outputs, (rows + 1) % count)), count, kinds
        )
        _check_itself(metric, outputs, kinds)
    else:
        _expect(len(targets) == count, f"give a right answer for each of the {count} samples, not {len(targets)}")
        _check_calls(lambda rows: metric.score(_rows(outputs, rows), [targets[row] for row in rows]), count, kinds)
    before = {name: array.copy() for name, array in outputs.items()}
    _ = metric.compare(outputs, outputs) if isinstance(metric, Agreement) else metric.score(outputs, list(targets))
    for name, array in outputs.items():
        _expect(np.array_equal(array, before[name]), f"the metric changed output '{name}'; work on a copy")


def _kinds(metric: Metric | Agreement) -> dict[str, str]:
    directions = metric.higher_is_better
    known = isinstance(directions, Mapping) and all(
        isinstance(name, str) and isinstance(up, bool) for name, up in directions.items()
    )
    _expect(known and bool(directions), f"higher_is_better must say True or False by score name, not {directions!r}")
    declared = getattr(metric, "aggregates", {})
    for name, kind in declared.items():
        _expect(name in directions, f"aggregates names '{name}', which is none of the scores {', '.join(directions)}")
        _expect(kind in aggregates.NAMES, f"'{name}' has aggregate {kind!r}; known are {', '.join(aggregates.NAMES)}")
    return aggregates_of(metric)


def _check_calls(call: Call, count: int, kinds: Mapping[str, str]) -> None:
    everything = np.arange(count)
    found = _checked(call, everything, kinds)
    for name, kind in kinds.items():
        terms = [score.values[name] for score in found]
        _expect(
            kind == "ap" or len(set(map(len, terms))) == 1, f"'{name}' has more terms for some samples than for others"
        )
        value = aggregates.value(kind, terms)
        _expect(not np.isnan(value), f"'{name}' of all samples has no value: {aggregates.undefined(kind)}")
    _expect(len({score.right is None for score in found}) == 1, "right is None for some samples and not for others")
    shuffled = np.random.default_rng(_SEED).permutation(count)
    ways = {
        "called again": [everything],
        "a sample at a time": np.split(everything, count),
        "in two batches": np.split(everything, [count // 2]),
        "in another order": [shuffled],
    }
    for way, batches in ways.items():
        for rows in batches:
            for row, score in zip(rows, _checked(call, rows, kinds), strict=True):
                _expect(_equal(score, found[row]), f"sample {row} scores {score} {way}, and {found[row]} at first")


def _checked(call: Call, rows: npt.NDArray[np.int64], kinds: Mapping[str, str]) -> list[SampleScore]:
    found = list(call(rows))
    _expect(len(found) == len(rows), f"the metric gave {len(found)} scores for {len(rows)} samples")
    for row, score in zip(rows, found, strict=True):
        what = f"sample {row}:"
        _expect(isinstance(score, SampleScore), f"{what} a {type(score).__name__} is no SampleScore")
        _expect(isinstance(score.prediction, str), f"{what} the prediction {score.prediction!r} is no text")
        _expect(
            set(score.values) == set(kinds),
            f"{what} scores are {', '.join(score.values)} and higher_is_better names {', '.join(kinds)}",
        )
        for name, kind in kinds.items():
            terms = score.values[name]
            wanted = f"{what} '{name}' is {terms!r}, and the aggregate {kind} needs {aggregates.wanted(kind)}"
            numbers = isinstance(terms, tuple) and all(isinstance(term, float | int) for term in terms)
            _expect(numbers and aggregates.valid(kind, terms), wanted)
        _expect(
            score.right is None or isinstance(score.right, bool), f"{what} right is {score.right!r}, no bool or None"
        )
        finite = score.margin is None or (isinstance(score.margin, float | int) and np.isfinite(score.margin))
        _expect(bool(finite), f"{what} the margin is {score.margin!r}, no finite number or None")
    return found


def _check_itself(metric: Agreement, outputs: Outputs, kinds: Mapping[str, str]) -> None:
    rows = np.arange(len(next(iter(outputs.values()))))
    itself = _checked(lambda rows: metric.compare(_rows(outputs, rows), _rows(outputs, rows)), rows, kinds)
    others = metric.compare(_rows(outputs, np.roll(rows, 1)), outputs)
    for row, score in enumerate(itself):
        _expect(score.right is not False, f"sample {row} does not agree with itself")
    for name, up in metric.higher_is_better.items():
        best, other = (aggregates.value(kinds[name], [s.values[name] for s in found]) for found in (itself, others))
        slack = _ABSOLUTE + _RELATIVE * abs(best)
        _expect(
            best >= other - slack if up else best <= other + slack,
            f"'{name}' of FP32's own outputs is {best:g} and that of other samples' outputs is better, {other:g}",
        )


def _equal(one: SampleScore, two: SampleScore) -> bool:
    if (one.prediction, one.right, one.margin is None) != (two.prediction, two.right, two.margin is None):
        return False
    pairs = [(one.values[name], two.values[name]) for name in two.values]
    pairs.append(((one.margin or 0.0,), (two.margin or 0.0,)))
    return all(len(a) == len(b) and np.allclose(a, b, rtol=_RELATIVE, atol=_ABSOLUTE) for a, b in pairs)


def _rows(outputs: Outputs, rows: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[np.generic]]:
    return {name: array[rows] for name, array in outputs.items()}


def _expect(holds: bool, message: str) -> None:
    if not holds:
        raise AssertionError(message)
