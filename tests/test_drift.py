"""Drift: no more false alarms than promised, and what it must see."""

from dataclasses import replace

import numpy as np
import pytest

from calib.errors import ConfigError, DataError
from calib.features import Features
from calib.quality.drift import drift

Table = tuple[np.ndarray, list[str]]


def draw(rng: np.random.Generator, groups: int, per: int, tensors: int, shared: float) -> Table:
    """log |x| of samples that resemble each other by tensor and, `shared` of their variance, by group."""

    def part(count: int) -> np.ndarray:
        return rng.normal(size=(count, tensors, 2)) + rng.normal(size=(count, 1, 1))

    own, common = part(groups * per), np.repeat(part(groups), per, axis=0)
    names = [f"g{i // per}" for i in range(groups * per)]
    return 0.3 * (np.sqrt(shared) * common + np.sqrt(1 - shared) * own), names


def features(logs: np.ndarray, inputs: int = 1) -> Features:
    count, tensors = logs.shape[:2]
    amax, mean = (np.exp(logs[:, :, i]).astype(np.float32) for i in (0, 1))
    names = tuple(f"t{i}" for i in range(tensors))
    ids = tuple(f"s{i:05d}" for i in range(count))
    return Features(ids, names, inputs, amax, mean, np.ones((count, tensors), np.int64), {})


def least(found) -> float:
    shifts = [p for shift in found.shifts for p in (shift.p, shift.tail.p)]
    return min([*shifts, found.classifier.p, found.classifier.tail.p])


def alarms(sizes: tuple[int, int], per: tuple[int, int], *, grouped: bool, repeats: int) -> int:
    """How often any p is within .1 where both samples come from the same place."""
    count = 0
    for seed in range(repeats):
        rng = np.random.default_rng(seed)
        (x, g), (y, h) = (draw(rng, size, each, 5, 0.5) for size, each in zip(sizes, per, strict=True))
        groups = (g, h) if grouped else (None, None)
        count += least(drift(features(x), features(y), groups=groups, level=0.1, name="log", seed=seed)) <= 0.1
    return count


# Of 40 at the level .1, more than 10 come by chance in one of 600.
@pytest.mark.parametrize(
    ("sizes", "per"),
    [((80, 80), (1, 1)), ((16, 24), (5, 5)), ((60, 16), (1, 9)), ((20, 20), (8, 2))],
    ids=["single", "groups", "singles against groups", "large against small"],
)
def test_no_more_false_alarms_than_the_level(sizes: tuple[int, int], per: tuple[int, int]) -> None:
    assert alarms(sizes, per, grouped=True, repeats=40) <= 10


def test_a_test_that_forgets_the_groups_would_alarm() -> None:
    assert alarms((16, 24), (5, 5), grouped=False, repeats=6) >= 5


@pytest.fixture(params=[0.0, 0.3], ids=["single", "grouped"])
def two(request: pytest.FixtureRequest) -> tuple[Table, Table]:
    rng = np.random.default_rng(11)
    return draw(rng, 60, 5, 50, request.param), draw(rng, 60, 5, 50, request.param)


def test_nothing_is_beyond_where_nothing_is_different(two: tuple[Table, Table]) -> None:
    (x, g), (y, h) = two
    found = drift(features(x), features(y), groups=(g, h), name="log")
    assert not found.beyond and not found.reasons
    assert found.samples == (300, 300) and found.groups == (60, 60) and found.detectable < 0.4


def test_a_gain_on_one_tensor_of_fifty_is_named(two: tuple[Table, Table]) -> None:
    (x, g), (y, h) = two
    y = y.copy()
    y[:, 7] += np.log(1.5)
    found = drift(features(x), features(y), groups=(g, h), name="log")
    assert found.beyond and {shift.tensor for shift in found.shifts[:2]} == {"t7"}
    assert found.shifts[0].p <= 0.002 and found.shifts[0].ratio == pytest.approx(1.5, rel=0.15)
    assert (
        found.reasons[0].startswith("activation t7: its ")
        and "times the calibration set's; Cliff's delta +." in found.reasons[0]
    )
    assert sum(shift.p <= 0.01 for shift in found.shifts) == 2
    assert found.classifier.features[0].startswith("t7: ")


def test_a_shift_of_all_is_seen_by_features_and_classifier(two: tuple[Table, Table]) -> None:
    (x, g), (y, h) = two
    found = drift(features(x), features(y + 0.3), groups=(g, h), name="log", level=0.05)
    assert found.beyond and found.shifts[0].p <= 0.01 and found.classifier.p <= 0.05
    back = drift(features(y + 0.3), features(x), groups=(h, g), name="log", level=0.05)
    assert back.shifts[0].effect == pytest.approx(-found.shifts[0].effect) and back.shifts[0].effect < 0


def test_a_new_device_in_a_part_of_the_samples_is_found_by_the_tails(two: tuple[Table, Table]) -> None:
    (x, g), (y, h) = two
    y = y.copy()
    new = np.arange(300) // 5 % 10 < 3
    y[new] += np.where(np.arange(50) % 2, 0.9, -0.9)[:, None]
    found = drift(features(x), features(y), groups=(g, h), name="log", level=0.05)
    # Neither typical view can go beyond .3 plus chance; the classifier's tail holds the new ones only.
    assert found.classifier.effect < 0.33
    assert found.beyond and found.classifier.tail.effect > 0.9 and found.classifier.tail.p <= 0.01
    assert any("a kind of sample that the calibration set lacks" in reason for reason in found.reasons)


def test_neither_order_of_samples_nor_of_tensors_matters(two: tuple[Table, Table]) -> None:
    (x, g), (y, h) = two
    one, other = features(x[:, :6]), features(y[:, :6] + 0.1)
    order = np.random.default_rng(0).permutation(300)
    turned = replace(
        other,
        ids=tuple(other.ids[i] for i in order),
        tensors=other.tensors[::-1],
        amax=other.amax[order][:, ::-1],
        mean=other.mean[order][:, ::-1],
    )
    found = drift(one, other, groups=(g, h), name="log", level=0.05)
    assert found == drift(one, turned, groups=(g, [h[i] for i in order]), name="log", level=0.05)
    assert found != drift(one, other, groups=(g, h), name="log", level=0.05, seed=1)


def test_equal_and_constant_features_are_no_drift() -> None:
    rng = np.random.default_rng(0)
    (x, _), (y, _) = draw(rng, 60, 1, 4, 0), draw(rng, 60, 1, 4, 0)
    x, y = np.round(x * 2), np.round(y * 2)  # ties: token ids, masks
    x[:, 1] = y[:, 1] = 0
    found = drift(features(x, 4), features(y, 4), groups=(None, None), name="log")
    assert not found.beyond and {shift.kind for shift in found.shifts} == {"input"}
    assert all(
        shift.effect == 0 and shift.p == 1 and shift.ratio == 1 for shift in found.shifts if shift.tensor == "t1"
    )


def test_a_large_sample_is_drawn_from() -> None:
    rng = np.random.default_rng(0)
    (x, _), (y, _) = draw(rng, 80, 1, 3, 0), draw(rng, 5000, 1, 3, 0)
    found = drift(features(x), features(y + 0.3), groups=(None, None), name="log", level=0.05)
    assert found.beyond and found.samples == (80, 5000) and found.groups == (80, 1000)
    assert found.notes[0].startswith("4000 samples were left out at random")


def test_too_few_to_tell_is_an_error_that_says_how_many() -> None:
    rng = np.random.default_rng(0)
    (x, g), (y, h) = draw(rng, 3, 40, 5, 0.5), draw(rng, 4, 40, 5, 0.5)
    with pytest.raises(
        DataError, match=r"has 3 and log 4 independent groups.*about \d+ on each side show an effect of \.33"
    ):
        drift(features(x), features(y), groups=(g, h), name="log")
    (x, g), (y, h) = draw(rng, 6, 3, 40, 1.0), draw(rng, 6, 3, 40, 1.0)
    with pytest.raises(DataError, match="too few to tell"):
        drift(features(x), features(y), groups=(g, h), name="log")
    (x, g), (y, h) = draw(rng, 25, 4, 20, 0.5), draw(rng, 25, 4, 20, 0.5)
    found = drift(features(x), features(y), groups=(g, h), name="log")
    assert found.detectable > 0.33 and "only effects above ." in found.notes[0]


def test_what_cannot_be_compared_is_refused() -> None:
    x, g = draw(np.random.default_rng(0), 60, 1, 3, 0)
    one = features(x)
    with pytest.raises(DataError, match=r"features of other tensors.*new"):
        drift(one, replace(one, tensors=("t0", "t1", "new")), groups=(None, None), name="log")
    with pytest.raises(DataError, match="log has no groups and what it is compared with has"):
        drift(one, one, groups=(g, None), name="log")
    with pytest.raises(DataError, match="NaN among the features of log"):
        drift(one, features(np.where(x > 0.5, np.nan, x)), groups=(None, None), name="log")
    with pytest.raises(ConfigError, match="limit between 0 and 1"):
        drift(one, one, groups=(None, None), name="log", level=0.5)
