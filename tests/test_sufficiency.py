"""Sufficiency: what is predicted from one set is what many sets do."""

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pytest

from calib.calibrators import Calibrator, Entropy, Max, Mse, Percentile
from calib.errors import DataError
from calib.histogram import Histogram, merge
from calib.quality.result import Curve, Sufficiency
from calib.quality.sufficiency import sufficiency
from calib.statistics import Shards, Statistics

Draw = Callable[[np.random.Generator, tuple[int, int]], npt.NDArray[np.float64]]
VALUES, PER_BLOCK, BLOCKS = 1000, 2, 16
SETS, PREDICTED = 60, 20


def uneven(draw: Draw) -> Draw:
    """Samples differ: each is 30 % louder or quieter than another."""
    return lambda rng, shape: draw(rng, shape) * np.exp(rng.normal(0, 0.3, (shape[0], 1)))


DISTRIBUTIONS: dict[str, Draw] = {
    "normal": uneven(lambda rng, shape: rng.normal(size=shape)),
    "t3": uneven(lambda rng, shape: rng.standard_t(3, shape)),
    "relu": uneven(lambda rng, shape: np.maximum(rng.normal(-0.3, 1, shape), 0)),
    "bounded": lambda rng, shape: rng.uniform(-1, 1, shape),
}


@dataclass(frozen=True)
class Rms:
    """A scale that is a smooth function of a mean, of which theory says everything."""

    name: str = "rms"
    needs_linear: bool = False
    calls: list[int] = field(default_factory=list)

    def amax(self, statistics: Statistics) -> float:
        self.calls.append(1)
        histogram = statistics.histogram
        return 4 * float(np.sqrt((histogram.counts * histogram.means() ** 2).sum() / histogram.total))


def blocks_of(rng: np.random.Generator, draw: Draw, blocks: int = BLOCKS, samples: int = PER_BLOCK) -> list[Histogram]:
    return [Histogram.of(draw(rng, (samples, VALUES)).astype(np.float32)) for _ in range(blocks)]


def judge(
    tensors: dict[str, list[Histogram]], calibrator: Calibrator, samples: int = PER_BLOCK, **options
) -> Sufficiency:
    count = len(next(iter(tensors.values())))
    shards = Shards(
        (samples,) * count, {name: tuple(part.coarse() for part in parts) for name, parts in tensors.items()}
    )
    return sufficiency(
        shards, {name: Statistics(merge(parts)) for name, parts in tensors.items()}, calibrator, **options
    )


def curve_of(parts: list[Histogram], calibrator: Calibrator, **options) -> Curve:
    return judge({"x": parts}, calibrator, **options).curves[0]


@functools.cache
def sets_of(name: str) -> list[list[Histogram]]:
    """Independent sets."""
    rng = np.random.default_rng(1)
    return [[part.coarse() for part in blocks_of(rng, DISTRIBUTIONS[name])] for _ in range(SETS)]


def actual(name: str, calibrator: Calibrator) -> tuple[float, float]:
    """95 % quantile of the deviation of half and of whole sets from the scale of all their data together."""
    endless = calibrator.amax(Statistics(merge(itertools.chain(*sets_of(name)))))
    half, whole = (
        np.quantile([abs(calibrator.amax(Statistics(merge(parts[:m]))) / endless - 1) for parts in sets_of(name)], 0.95)
        for m in (BLOCKS // 2, BLOCKS)
    )
    return float(half), float(whole)


@pytest.mark.parametrize("calibrator", [Percentile(99.9), Mse()], ids=lambda one: one.name)
@pytest.mark.parametrize("name", ["normal", "t3", "relu"])
def test_the_prediction_from_one_set_is_what_many_sets_do(name: str, calibrator: Calibrator) -> None:
    half, whole = actual(name, calibrator)
    curves = [curve_of(parts, calibrator) for parts in sets_of(name)[:PREDICTED]]
    ratios = np.asarray([[curve.deviation[-2] / half, curve.deviation[-1] / whole] for curve in curves])
    assert (np.median(ratios, axis=0) > 1 / 2).all()
    assert (np.median(ratios, axis=0) < 2).all()
    assert (np.abs(np.log2(ratios)) < 2).mean() > 0.75


@pytest.mark.parametrize("blocks", [2, 3, 5, 16])
def test_a_mean_deviates_as_theory_says(blocks: int) -> None:
    """amax = 4 sqrt(mean x^2), samples of one loudness each: the relative deviation is 1.96 sd(x^2) / (2 mean sqrt(n))."""
    draw: Draw = lambda rng, shape: np.ones(shape) * np.sqrt(rng.uniform(0.9, 1.1, (shape[0], 1)))  # noqa: E731
    theory = 1.96 * 0.2 * np.sqrt(1 / 12) / 2 / np.sqrt(8 * blocks)
    found = [
        curve_of(blocks_of(np.random.default_rng(k), draw, blocks, samples=8), Rms(), samples=8) for k in range(30)
    ]
    squares = np.asarray([curve.deviation[-1] ** 2 for curve in found])
    student = {2: 12.71, 3: 4.303, 5: 2.776, 16: 2.131}[blocks] / 1.96
    assert np.sqrt(squares.mean()) / student == pytest.approx(theory, rel=0.35)


def test_a_bias_that_fades_with_n_is_found() -> None:
    @dataclass(frozen=True)
    class Short:
        name: str = "short"
        needs_linear: bool = False

        def amax(self, statistics: Statistics) -> float:
            return 1 - 1000 / statistics.histogram.total

    found = judge({"x": sets_of("bounded")[0]}, Short(), tolerance=0.03)
    curve = found.curves[0]
    assert curve.deviation[-2:] == pytest.approx((1000 / 16_000, 1000 / 32_000), rel=0.06)
    assert curve.growth == pytest.approx(1000 / 32_000, rel=0.1)
    assert found.enough is None
    assert found.estimate is not None
    assert 33 <= found.estimate <= 45


def test_how_many_would_be_enough_is_what_theory_says() -> None:
    draw: Draw = lambda rng, shape: np.ones(shape) * np.sqrt(rng.uniform(0.5, 1.5, (shape[0], 1)))  # noqa: E731
    found = [
        judge({"x": blocks_of(np.random.default_rng(k), draw, samples=8)}, Rms(), samples=8, tolerance=0.01)
        for k in range(25)
    ]
    theory = (2.131 * np.sqrt(1 / 12) / 2 / 0.01) ** 2  # 946 samples
    assert all(one.enough is None for one in found)
    estimates = [one.estimate for one in found if one.estimate is not None]
    assert len(estimates) > 20
    assert np.median(estimates) == pytest.approx(theory, rel=0.4)
    enough = [
        judge({"x": blocks_of(np.random.default_rng(k), draw, samples=8)}, Rms(), samples=8, tolerance=0.07).enough
        for k in range(25)
    ]
    assert theory / 49 == pytest.approx(19.3, rel=0.01)  # so that 32 is the first size with enough
    assert sorted(enough, key=str)[len(enough) // 2] in (16, 32)


def test_the_largest_value_of_an_endless_distribution_never_settles_and_it_says_so() -> None:
    for name, least in (("normal", 0.02), ("t3", 0.1)):
        found = [judge({"x": parts}, Max()) for parts in sets_of(name)[:15]]
        assert all(one.enough is None for one in found)
        assert np.mean([one.curves[0].growth for one in found]) > least
    assert np.mean([one.estimate is None for one in found]) > 0.8  # t3: more data does not help at all


def test_the_largest_value_of_a_bounded_distribution_settles() -> None:
    found = judge({"x": sets_of("bounded")[0]}, Max())
    assert found.enough == found.sizes[0] == PER_BLOCK
    assert found.estimate is None
    assert found.curves[0].growth < 1e-3


def test_bands_hold_the_scales_of_other_sets() -> None:
    inside = []
    for parts, other in itertools.pairwise(sets_of("normal")[:21]):
        curve = curve_of(parts, Rms())
        low, high = curve.scale_low[-2], curve.scale_high[-2]
        inside.append(low <= Rms().amax(Statistics(merge(other[:8]))) / 127 / curve.scale <= high)
        assert np.all(np.diff(curve.scale_low) >= 0)
        assert np.all(np.diff(curve.scale_high) <= 0)
        assert curve.amax_low[-1] < 1 < curve.amax_high[-1]
    assert np.mean(inside) > 0.6  # both the band's middle and the other set are random


def test_all_tensors_must_be_within_and_the_worst_comes_first() -> None:
    rng = np.random.default_rng(0)
    tensors = {"bounded": sets_of("bounded")[0], "t3": blocks_of(rng, DISTRIBUTIONS["t3"])}
    found = judge(tensors, Percentile(99.9))
    assert [curve.tensor for curve in found.curves] == ["t3", "bounded"]
    assert found.curves[1].enough == 2
    assert found.enough is None
    assert found.sizes == (2, 4, 8, 16, 32)
    assert (found.blocks, found.calibrator, found.tolerance, found.note) == (16, "percentile-99.9", 0.01, "")
    assert judge(tensors, Percentile(99.9), tolerance=10.0).enough == 2


def test_about_forty_calls_a_tensor_and_one_where_nothing_can_change() -> None:
    steps: list[int] = []
    calibrator = Rms()
    judge({"x": sets_of("normal")[0]}, calibrator, progress=steps.append)
    assert 30 < len(calibrator.calls) <= 45
    assert steps == [1]
    calibrator.calls.clear()
    constant = [Histogram.of(np.tile(np.float32([0, 0.5, 0.5, 2]), n)) for n in (100, 100, 130, 99)]
    curve = curve_of(constant, calibrator)
    assert len(calibrator.calls) == 1
    assert (set(curve.deviation), set(curve.scale_low), curve.enough) == ({0.0}, {1.0}, 2)


def test_the_same_seed_gives_the_same_and_the_order_of_tensors_does_not_matter() -> None:
    tensors = {"a": sets_of("normal")[0], "b": sets_of("relu")[0]}
    one = judge(tensors, Mse())
    assert one == judge(dict(reversed(tensors.items())), Mse())
    assert one.curves != judge(tensors, Mse(), seed=1).curves


def test_a_tensor_that_is_zero_in_some_blocks_has_no_scale_there() -> None:
    zero = Histogram.of(np.zeros(100, np.float32))
    lively = sets_of("bounded")[0]
    few = curve_of([zero, zero, *lively[:14]], Max())  # two blocks of 16: none of four or more is zero
    assert few.deviation[0] == 1
    assert few.scale_low[0] == few.amax_low[0] == 0
    assert few.deviation[-1] < 0.01
    assert few.enough is not None
    assert few.enough > 2
    most = judge({"x": [lively[0], *[zero] * 15]}, Max())  # every half-sample but one is zero
    assert set(most.curves[0].deviation) == {1.0}
    assert most.enough is most.estimate is None


def test_entropy_is_judged_by_max_and_says_so() -> None:
    found = judge({"x": sets_of("bounded")[0]}, Entropy())
    assert found.calibrator == "max"
    assert found.note.startswith("entropy reads")


def test_one_block_is_too_few_and_the_message_says_how_many_are_needed() -> None:
    with pytest.raises(DataError, match=r"1 samples in 1 block .* at least 2 samples"):
        judge({"x": sets_of("bounded")[0][:1]}, Max(), samples=1)


def test_a_tensor_that_is_always_zero_is_named() -> None:
    with pytest.raises(DataError, match="'dead' is zero for every sample"):
        judge({"dead": [Histogram.of(np.zeros(10, np.float32))] * 4}, Max())


def test_a_calibrator_that_fails_on_a_part_says_on_which() -> None:
    @dataclass(frozen=True)
    class Picky:
        name: str = "picky"
        needs_linear: bool = False

        def amax(self, statistics: Statistics) -> float:
            if statistics.histogram.total < 5000:
                raise DataError("too few values")
            return statistics.histogram.amax

    with pytest.raises(DataError, match=r"tensor 'x, blocks \d+': too few values"):
        judge({"x": sets_of("normal")[0]}, Picky())
