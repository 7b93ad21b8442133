"""Histograms: exact, mergeable, independent of order and batching."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from calib import histogram, kernels
from calib.errors import DataError
from calib.histogram import Counter, Histogram, LinearCounter

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
ARRAYS = hnp.arrays(np.float32, st.integers(0, 200), elements=FLOATS)


def same(one: Histogram, other: Histogram) -> bool:
    arrays = (np.array_equal(getattr(one, name), getattr(other, name)) for name in ("bins", "counts", "residuals"))
    return one.amax == other.amax and all(arrays)


@given(st.lists(ARRAYS, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_any_split_order_and_merge_give_the_same_histogram(parts: list[npt.NDArray[np.float32]], random) -> None:
    whole = Histogram.of(np.concatenate(parts))
    shuffled = list(parts)
    random.shuffle(shuffled)
    counter = Counter()
    for part in shuffled:
        counter.add(part)
        counter.histogram()  # looking does not change it
    assert same(whole, counter.histogram())
    merged = [Histogram.of(part) for part in shuffled]
    assert same(whole, histogram.merge(merged))
    nested = histogram.merge([histogram.merge(merged[:2]), histogram.merge(merged[2:])])
    assert same(whole, nested)


@given(ARRAYS)
def test_counts_amax_and_means_are_those_of_the_values(values: npt.NDArray[np.float32]) -> None:
    found = Histogram.of(values)
    magnitudes = np.abs(values)
    assert found.total == values.size
    assert found.amax == (magnitudes.max() if values.size else 0.0)
    bins = magnitudes.view(np.uint32) >> 13
    for number, mean in zip(found.bins, found.means(), strict=True):
        inside = magnitudes[bins == number].astype(np.float64)
        assert mean == pytest.approx(inside.mean(), rel=1e-9)


@given(ARRAYS.filter(lambda values: values.size > 0), st.integers(1, 5))
def test_linear_histogram_does_not_depend_on_the_split(values: npt.NDArray[np.float32], pieces: int) -> None:
    amax = Histogram.of(values).amax
    whole, split = LinearCounter(amax), LinearCounter(amax)
    whole.add(values)
    for part in np.array_split(values[::-1], pieces):
        split.add(part)
    assert np.array_equal(whole.histogram().counts, split.histogram().counts)
    assert whole.histogram().counts.sum() == values.size


def test_more_values_than_a_packed_counter_holds() -> None:
    """torch.histc stops counting at 2**24 (NVIDIA/TensorRT#2757); one bin here gets 2.5 times that."""
    values = np.full(1 << 22, -1.25, np.float32)
    counter = Counter()
    for _ in range(10):
        counter.add(values)
    found = counter.histogram()
    assert (found.total, found.amax) == (10 << 22, 1.25)
    assert found.means().tolist() == [1.25]
    big = Histogram.of(np.full((1 << 24) + 5, 0.7, np.float32))
    assert big.counts.tolist() == [(1 << 24) + 5]
    assert big.means()[0] == np.float32(0.7)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nonfinite_values_are_refused(bad: float) -> None:
    with pytest.raises(DataError, match="NaN or Inf"):
        Histogram.of(np.array([1.0, bad, 2.0], np.float32))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_other_float_types_and_layouts(dtype: type) -> None:
    values = np.arange(24, dtype=dtype).reshape(2, 3, 4).transpose(2, 0, 1)[:, ::-1]
    assert same(Histogram.of(values), Histogram.of(np.arange(24, dtype=np.float32)))


def test_largest_and_smallest_floats() -> None:
    limits = np.finfo(np.float32)
    found = Histogram.of(np.array([limits.max, -limits.max, limits.tiny, limits.smallest_subnormal, 0.0], np.float32))
    assert found.amax == limits.max
    assert found.total == 5
    assert found.upper_edges()[-1] == limits.max


def test_empty() -> None:
    assert same(histogram.merge([]), Histogram.empty())
    assert Histogram.of(np.zeros((0, 3), np.float32)).total == 0


def test_second_pass_over_other_data_is_an_error() -> None:
    counter = LinearCounter(1.0)
    with pytest.raises(DataError, match="1 values are outside"):
        counter.add(np.array([0.5, 1.5], np.float32))


@settings(max_examples=20)
@given(st.integers(1, 8), st.integers(0, 7))
def test_nonfinite_rows_are_named(rows: int, bad: int) -> None:
    values = np.ones((rows, 3), np.float32)
    values[bad % rows, 1] = np.nan
    assert histogram.nonfinite_rows(values).tolist() == [bad % rows]


def test_counting_from_several_threads_equals_counting_in_turn() -> None:
    draws = np.random.default_rng(0)
    parts = [
        np.float32(10.0 ** draws.integers(-9, 9)) * draws.normal(size=50_000).astype(np.float32) for _ in range(64)
    ]
    whole = Histogram.of(np.concatenate(parts))
    counter, linear, alone = Counter(), LinearCounter(whole.amax), LinearCounter(whole.amax)
    alone.add(np.concatenate(parts))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(counter.add, parts))
        list(pool.map(linear.add, parts))
    assert same(whole, counter.histogram())
    assert np.array_equal(alone.histogram().counts, linear.histogram().counts)


def test_counts_of_every_bin_and_both_signs_are_exact() -> None:
    """Unpacking divides in floating point; the hardest cases are many values, and all or none of the lower bits set."""
    for lower, times in ((0, 1), (8191, 1), (0, 7), (8191, 7)):
        bins = np.arange(0x7F800000 >> 13, dtype=np.uint32)
        patterns = np.concatenate([bins << 13 | lower, bins << 13 | lower | 0x80000000]).astype(np.uint32)
        found = Histogram.of(np.tile(patterns, times).view(np.float32))
        assert np.array_equal(found.bins, bins)
        assert (found.counts == 2 * times).all()
        assert (found.residuals == 2 * times * lower).all()
    for pattern in (0x007FFFFF, 0x80000000, 0xFF7FFFFF, 0x7F7FE000):  # a full packed counter
        found = Histogram.of(np.full(kernels.PACKED_LIMIT, pattern, np.uint32).view(np.float32))
        assert found.counts.tolist() == [kernels.PACKED_LIMIT]
        assert found.residuals.tolist() == [kernels.PACKED_LIMIT * (pattern & 8191)]
