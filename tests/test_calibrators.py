"""Calibrators: each against its definition, in the plainest numpy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from calib import calibrators, scales
from calib.calibrators import Entropy, Max, Mse, Percentile
from calib.errors import ConfigError, DataError
from calib.histogram import Histogram, LinearCounter
from calib.statistics import Statistics

ALL = [Max(), Percentile(99.99), Percentile(50), Mse(), Entropy()]
VALUES = hnp.arrays(np.float32, st.integers(1, 300), elements=st.floats(-1e3, 1e3, width=32)).filter(
    lambda values: np.abs(values).max() > 1e-30
)


def statistics(values: np.ndarray) -> Statistics:
    histogram = Histogram.of(values)
    linear = LinearCounter(histogram.amax)
    linear.add(values)
    return Statistics(histogram, linear.histogram())


def squared_error(values: np.ndarray, amax: float) -> float:
    scale = np.float64(amax) / 127
    return float(((np.abs(values) - np.clip(np.rint(np.abs(values) / scale), 0, 127) * scale) ** 2).sum())


@given(VALUES)
def test_max_is_max(values: np.ndarray) -> None:
    assert Max().amax(statistics(values)) == np.abs(values).max()


@given(VALUES, st.floats(1, 100))
def test_percentile_keeps_its_share_and_no_more_than_a_bin_above(values: np.ndarray, percent: float) -> None:
    amax = Percentile(percent).amax(statistics(values))
    magnitudes = np.sort(np.abs(values))
    exact = magnitudes[max(int(np.ceil(values.size * (percent / 100) - 1e-9)) - 1, 0)]
    if exact > scales.MIN_SCALE * 127:  # where the percentile itself is zero, amax is the largest value
        assert exact <= amax <= exact * (1 + 2**-9)
    else:
        assert amax == magnitudes[-1]


def test_percentile_of_a_constant_is_the_constant() -> None:
    """Peers take the lower edge of the bin and lose a quarter of it (peers.md)."""
    assert Percentile(99.9).amax(statistics(np.full(1000, 3.7, np.float32))) == np.float32(3.7)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", ["gauss", "outlier", "uint8", "masses"])
def test_mse_is_the_least_error_of_a_dense_search(seed: int, kind: str) -> None:
    draws = np.random.default_rng(seed)
    values = {
        "gauss": draws.normal(size=4000),
        "outlier": np.r_[draws.normal(size=4000), draws.normal(size=4) * 30],
        "uint8": draws.integers(0, 256, 4000) / 127.5 - 1,
        "masses": np.r_[draws.normal(size=1000), np.full(3000, 0.731), np.full(500, 2.5)],
    }[kind].astype(np.float32)
    found = Mse().amax(statistics(values))
    dense = np.abs(values).max() * np.linspace(0.01, 1, 20_000)
    best = min(squared_error(values, amax) for amax in dense)
    assert squared_error(values, found) <= best * 1.05


def test_mse_uses_exact_means_not_bin_centres() -> None:
    """A point mass off its bin's centre must not move, or the search puts it on the wrong side of a step."""
    mass = np.float32(1 + 2**-11 + 2**-13)
    histogram = Histogram.of(np.full(100, mass, np.float32))
    assert histogram.means()[0] == mass


@pytest.mark.parametrize("calibrator", ALL, ids=lambda calibrator: calibrator.name)
@pytest.mark.parametrize("value", [3.0, -0.1, 1e-20, 1e30])
def test_constant_tensor(calibrator: calibrators.Calibrator, value: float) -> None:
    values = np.full((4, 5), value, np.float32)
    amax = calibrators.calibrate({"t": statistics(values)}, calibrator)["t"]
    assert amax == pytest.approx(abs(value), rel=1e-6)
    scale = scales.scale_of(amax)
    assert scales.dequantize(scales.quantize(values, scale), scale) == pytest.approx(values, rel=1e-6)


@pytest.mark.parametrize("calibrator", ALL, ids=lambda calibrator: calibrator.name)
@pytest.mark.parametrize("values", [np.zeros(8, np.float32), np.zeros(0, np.float32)], ids=["zeros", "none"])
def test_no_scale_without_values(calibrator: calibrators.Calibrator, values: np.ndarray) -> None:
    with pytest.raises(DataError, match=r"tensor 'dead' (is zero for every sample|has no values)"):
        calibrators.calibrate({"dead": statistics(values)}, calibrator)


@pytest.mark.parametrize("calibrator", ALL, ids=lambda calibrator: calibrator.name)
@given(values=VALUES, order=st.randoms(use_true_random=False))
def test_scales_do_not_depend_on_the_order(calibrator: calibrators.Calibrator, values: np.ndarray, order) -> None:
    shuffled = values.tolist()
    order.shuffle(shuffled)
    assert calibrator.amax(statistics(values)) == calibrator.amax(statistics(np.array(shuffled, np.float32)))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("kl", "no calibrator is called 'kl'"),
        ("percentile", "needs a number"),
        ("percentile-101", r"must be in \(0, 100\]"),
        ("numpy:zeros", "is not a calibrator"),
        ("no.such.module:x", "cannot be imported"),
    ],
)
def test_unknown_calibrators(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        calibrators.parse(name)


@pytest.mark.parametrize("name", ["max", "mse", "entropy", "percentile-99.99", "percentile-50"])
def test_a_name_is_read_back(name: str) -> None:
    assert calibrators.parse(name).name == name


def test_a_users_calibrator() -> None:
    assert calibrators.parse("calib.calibrators:Max") == Max()
