"""One pass over a sample's tensor: the same numbers as numpy's."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from calib.moments import sample

FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
ARRAYS = hnp.arrays(np.float32, st.integers(0, 300), elements=FINITE)
THRESHOLDS = st.lists(st.floats(0, width=32, allow_nan=False), max_size=4).map(lambda one: np.float32(sorted(one)))


@given(ARRAYS, THRESHOLDS, st.integers(1, 60))
def test_amax_sum_and_counts_are_those_of_numpy(
    values: npt.NDArray[np.float32], thresholds: npt.NDArray[np.float32], repeats: int
) -> None:
    values = np.tile(values, repeats)  # blocks, lanes and rests
    amax, total, counts = sample(values, thresholds)
    magnitudes = np.abs(values)
    assert amax == magnitudes.max(initial=0)
    assert total == pytest.approx(magnitudes.sum(dtype=np.float64), rel=1e-12)
    assert counts.tolist() == [int((magnitudes > threshold).sum()) for threshold in thresholds]


@pytest.mark.parametrize("place", [0, 4095, 4096, 9000, 9999])
@pytest.mark.parametrize("value", [7.0, -7.0])
def test_a_single_value_is_found_wherever_it_is(place: int, value: float) -> None:
    values = np.full(10_000, 0.5, np.float32)
    values[place] = value
    amax, total, counts = sample(values, np.float32([0.5, 6.999, 7.0, 8.0]))
    assert (amax, total, counts.tolist()) == (7.0, 9999 * 0.5 + 7, [1, 1, 0, 0])


def test_nan_and_inf_are_noticed() -> None:
    thresholds = np.float32([1.0, np.inf])
    values = np.ones(5000, np.float32)
    for bad in (np.inf, -np.inf):
        values[4500] = bad
        amax, total, counts = sample(values, thresholds)
        assert (amax, total, counts.tolist()) == (np.inf, np.inf, [1, 0])
    for bits in (0x7FC00000, 0xFFC00000, 0x7F800001):  # quiet, negative, signalling
        values.view(np.uint32)[10] = bits
        amax, total, counts = sample(values, thresholds)
        assert np.isnan(amax)
        assert np.isnan(total)
        assert counts.tolist() == [1, 0]  # the Inf


def test_smallest_values_count() -> None:
    values = np.float32([1e-45, -1e-45, 0.0, -0.0])
    amax, total, counts = sample(values, np.float32([0.0]))
    assert amax == values[0]
    assert total == 2 * float(values[0])
    assert counts.tolist() == [2]


def test_nothing() -> None:
    assert sample(np.zeros(0, np.float32), np.zeros(0, np.float32))[:2] == (0.0, 0.0)
