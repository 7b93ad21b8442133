"""Coverage: the slice that was left out of the calibration set is named, and what only looks bad is not. Comparison."""

from typing import Any

import numpy as np
import pytest

from calib.calibrators import Calibrator, Max, Mse, Percentile, calibrate
from calib.errors import DataError
from calib.features import Features
from calib.histogram import Histogram, merge
from calib.quality.compare import Side, compare
from calib.quality.coverage import coverage
from calib.quality.result import Coverage
from calib.scales import Origin, Scales, scale_of
from calib.statistics import Observed, Shards, Statistics

TENSORS, VALUES = 6, 400
DEVICES = ("phone", "fax", "scanner", "camera")


class World:
    """Samples of six tensors; those of a "thermal" device are some louder in two of them."""

    def __init__(self, rows: list[dict[str, Any]], seed: int, louder: float = 2.0) -> None:
        rng = np.random.default_rng(seed)
        self.metadata = [{"id": f"s{i}", **row} for i, row in enumerate(rows)]
        loudness = np.exp(rng.normal(0, 0.15, (len(rows), TENSORS, 1)))
        self.values = (rng.normal(size=(len(rows), TENSORS, VALUES)) * loudness).astype(np.float32)
        thermal = [i for i, row in enumerate(rows) if row.get("device") == "thermal"]
        self.values[np.ix_(thermal, [2, 3])] *= np.float32(louder)

    def calibrate(self, calibrator: Calibrator) -> dict[str, float]:
        statistics = {f"t{t}": Statistics(Histogram.of(self.values[:, t])) for t in range(TENSORS)}
        return calibrate(statistics, calibrator)

    def features(self, thresholds: dict[str, dict[str, float]]) -> Features:
        magnitudes = np.abs(self.values)
        clipped = {
            name: np.stack(
                [(magnitudes[:, t] > limit[f"t{t}"] * (1 + 1e-6)).sum(axis=1) for t in range(TENSORS)], axis=1
            ).astype(np.int64)
            for name, limit in thresholds.items()
        }
        return Features(
            ids=tuple(str(row["id"]) for row in self.metadata),
            tensors=tuple(f"t{t}" for t in range(TENSORS)),
            inputs=1,
            amax=magnitudes.max(axis=2),
            mean=magnitudes.mean(axis=2),
            sizes=np.full(magnitudes.shape[:2], VALUES, np.int64),
            clipped=clipped,
        )


def rows(count: int, thermal: int, rare: int = 0) -> list[dict[str, Any]]:
    """`thermal` of them of one device, `rare` of them at single sites, the rest spread."""
    found = [{"device": DEVICES[i % 4], "site": f"site {i % 3}"} for i in range(count)]
    for i in range(thermal):
        found[i * count // thermal]["device"] = "thermal"
    for i in range(rare):
        found[-1 - i]["site"] = f"only {i}"
    return found


def cover(world: World, held: World | None, calibrator: Calibrator, calibration: World) -> Coverage:
    thresholds = calibration.calibrate(calibrator)
    by_name = {calibrator.name: thresholds}
    return coverage(
        world.features(by_name),
        world.metadata,
        ("device", "site"),
        calibrator.name,
        thresholds,
        calibration=held.features(by_name) if held else None,
        calibration_metadata=held.metadata if held else (),
    )


@pytest.mark.parametrize("known", [True, False], ids=["with calibration", "without"])
@pytest.mark.parametrize("calibrator", [Max(), Mse(), Percentile(99.9)], ids=lambda one: one.name)
def test_a_device_left_out_of_the_calibration_set_comes_first(calibrator: Calibrator, known: bool) -> None:
    firsts = []
    for seed in range(10):
        calibration = World(rows(128, thermal=0), seed)
        evaluation = World(rows(400, thermal=20, rare=25), seed + 50)
        found = cover(evaluation, calibration if known else None, calibrator, calibration)
        first = found.slices[0]
        firsts.append((first.column, first.value, first.tensor in ("t2", "t3"), first.samples))
        assert {(clip.column, clip.value) for clip in found.worst[:2]} == {("device", "thermal")}
        expected = {"device = thermal", *(f"site = only {i}" for i in range(25))} if known else set()
        assert set(found.uncovered) == expected
        assert len(found.slices) == 5 + 3 + 25
        assert found.tensors[0].tensor in ("t2", "t3")
        assert found.tensors[0].samples == found.samples == 400
        assert first.overshoot > 1
    assert set(firsts) == {("device", "thermal", True, 20)}


@pytest.mark.parametrize("calibrator", [Max(), Mse()], ids=lambda one: one.name)
def test_a_freak_value_or_a_freak_sample_does_not_outrank_the_left_out_device(calibrator: Calibrator) -> None:
    calibration = World(rows(128, thermal=0), 1)
    evaluation = World(rows(400, thermal=20, rare=5), 2)
    evaluation.values[8, 5, 17] = 1e4  # one value of a phone
    evaluation.values[[9, 13], 4] *= 1000  # two whole samples of a fax
    evaluation.values[-1, 1] *= 1000  # the only sample of a site
    found = cover(evaluation, calibration, calibrator, calibration)
    assert (found.slices[0].column, found.slices[0].value) == ("device", "thermal")
    assert found.tensors[0].tensor in ("t2", "t3")
    alone = next(clip for clip in found.slices if clip.value == "only 0")  # kept, and says that it is one sample
    assert alone.samples == 1


def test_what_is_clipped_of_the_calibration_set_too_is_not_held_against_a_slice() -> None:
    limits = {"mse": {f"t{t}": 1.0 for t in range(TENSORS)}}
    calibration, evaluation = World(rows(64, thermal=0), 7), World(rows(64, thermal=16), 8)
    for world in (calibration, evaluation):
        world.values[:] = 0.5
        world.values[:, 0, :40] = 2.0  # a tenth of every sample
    thermal = [i for i, row in enumerate(evaluation.metadata) if row["device"] == "thermal"]
    evaluation.values[thermal, 0, 40:42] = 2.0
    evaluation.values[thermal, 1, :8] = 2.0
    features = evaluation.features(limits)
    found = coverage(
        features,
        evaluation.metadata,
        ["device"],
        "mse",
        limits["mse"],
        calibration.features(limits),
        calibration.metadata,
    )
    assert [(clip.value, clip.tensor) for clip in found.worst[:2]] == [("thermal", "t1"), ("thermal", "t0")]
    assert [clip.calibration for clip in found.worst[:2]] == [0.0, 0.1]


def test_nothing_left_out_covers_all() -> None:
    calibration = World(rows(128, thermal=8), 3)
    evaluation = World(rows(400, thermal=20), 4)
    found = cover(evaluation, calibration, Max(), calibration)
    assert found.uncovered == ()
    assert found.overall < 1e-4
    assert max(clip.share for clip in found.slices) < 0.001
    assert all(clip.calibration == 0 for clip in found.tensors)


def test_the_numbers_of_a_slice_are_counts() -> None:
    world = World([{"device": "a"}, {"device": "a"}, {"device": "b"}, {}], 5)
    world.values[:] = 0.5
    world.values[0, 1, :10] = 3.0
    world.values[1, 1, :2] = -5.0
    thresholds = {"t1": 2.0, "t0": 1.0}
    features = world.features({"mine": {f"t{t}": thresholds.get(f"t{t}", 1.0) for t in range(TENSORS)}})
    found = coverage(features, world.metadata, ["device"], "mine", thresholds)
    assert [clip.tensor for clip in found.tensors] == ["t1", "t0"]  # those that have scales
    total = found.tensors[0]
    assert (total.samples, total.share, total.hit, total.overshoot) == (4, 12 / 1600, 0.5, 2.5)
    assert total.calibration is None
    assert found.overall == 12 / 3200
    by_slice = {clip.value: clip for clip in found.slices}
    assert set(by_slice) == {"a", "b", "(none)"}
    assert (by_slice["a"].tensor, by_slice["a"].share, by_slice["a"].hit, by_slice["a"].samples) == ("t1", 0.015, 1, 2)
    assert by_slice["b"].share == by_slice["(none)"].share == 0
    assert found.slices[0].value == "a"


def test_what_does_not_fit_is_said() -> None:
    world = World(rows(8, thermal=0), 6)
    limits = world.calibrate(Max())
    features = world.features({"max": limits})
    with pytest.raises(DataError, match="7 records of metadata for 8 samples"):
        coverage(features, world.metadata[:7], [], "max", limits)
    with pytest.raises(DataError, match="no sample has the metadata column 'devise'; known are device, id, site"):
        coverage(features, world.metadata, ["devise"], "max", limits)
    with pytest.raises(DataError, match="what mse clips was not counted; counted were max"):
        coverage(features, world.metadata, [], "mse", limits)
    features.clipped["max"][:, 3] = -1
    with pytest.raises(DataError, match="what max clips of tensor 't3' was not counted"):
        coverage(features, world.metadata, [], "max", limits)
    none = World([], 0)
    with pytest.raises(DataError, match="no samples on which to count"):
        coverage(none.features({"max": limits}), none.metadata, [], "max", limits)


def side(name: str, worlds_seed: int, calibrator: Calibrator, louder: float = 1.0) -> Side:
    world = World([{"device": "thermal"}] * 64, worlds_seed, louder)
    blocks = {f"t{t}": [Histogram.of(part[:, t]) for part in np.split(world.values, 16)] for t in range(TENSORS)}
    statistics = {tensor: Statistics(merge(parts)) for tensor, parts in blocks.items()}
    shards = Shards((4,) * 16, {tensor: tuple(part.coarse() for part in parts) for tensor, parts in blocks.items()})
    activations = {tensor: scale_of(amax) for tensor, amax in calibrate(statistics, calibrator).items()}
    return Side(name, Observed(statistics, shards=shards), Scales(activations, {}, Origin(calibrator.name)))


def judging(first: Side, second: Side) -> Features:
    limits = {
        name: {tensor: float(scale) * 127 for tensor, scale in one.scales.activations.items()}
        for name, one in (("first", first), ("second", second))
    }
    return World(rows(100, thermal=20), 99).features(limits)


def test_two_sets_of_the_same_kind_differ_by_noise_and_a_louder_one_by_more() -> None:
    calibrator = Percentile(99.9)
    first, same, louder = (side(n, s, calibrator, by) for n, s, by in (("a", 1, 1.0), ("b", 2, 1.0), ("c", 3, 2.0)))
    found = compare(first, same, calibrator, judging(first, same))
    assert found.beyond_noise == 0
    assert (found.calibrator, found.first, found.second, found.evaluation) == ("percentile-99.9", "a", "b", 100)
    assert all(0 < item.noise < 0.3 for item in found.differences)
    found = compare(first, louder, calibrator, judging(first, louder))
    assert {item.tensor for item in found.differences[:2]} == {"t2", "t3"}
    assert found.beyond_noise == 2
    assert found.differences[0].ratio == pytest.approx(2, rel=0.2)
    assert found.less_clipping == "second"
    assert found.clipped_second < found.clipped_first
    worst = found.differences[0]
    assert worst.clipped_second < worst.clipped_first
    turned = compare(louder, first, calibrator, judging(louder, first))
    assert turned.less_clipping == "first"


def test_a_set_against_itself_is_equal() -> None:
    one = side("a", 1, Mse())
    found = compare(one, one, Mse(), judging(one, one))
    assert found.less_clipping == "equal"
    assert {item.ratio for item in found.differences} == {1.0}


def test_sets_that_cannot_be_compared_are_refused() -> None:
    one = side("a", 1, Max())
    features = judging(one, one)
    bare = Side("bare", Observed(one.observed.tensors), one.scales)
    with pytest.raises(DataError, match="bare are not kept by block"):
        compare(one, bare, Max(), features)
    other = Side("other", one.observed, Scales({"y": np.float32(1)}, {}, Origin("max")))
    with pytest.raises(DataError, match="a and other have scales of no common tensor"):
        compare(one, other, Max(), features)
    features.clipped.pop("second")
    with pytest.raises(DataError, match="what the second set's scales clip was not counted"):
        compare(one, one, Max(), features)
