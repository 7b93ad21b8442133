"""The verdict says what the whole interval says, and not more."""

import pytest

from calib.study.result import Candidate, Interval
from calib.study.verdict import decide


@pytest.mark.parametrize(
    ("drop", "low", "high", "passed", "headline"),
    [
        (0.002, -0.001, 0.004, True, "keeps CER within 0.005"),
        (0.002, -0.001, 0.006, False, "Not shown: INT8 (mse) may cost more"),
        (0.007, -0.001, 0.015, False, "Not shown: INT8 (mse) may cost more"),
        (0.010, 0.006, 0.015, False, "INT8 (mse) loses more CER"),
    ],
)
@pytest.mark.parametrize("higher_is_better", [False, True])
def test_the_interval_decides(
    drop: float, low: float, high: float, passed: bool, headline: str, higher_is_better: bool
) -> None:
    sign = -1 if higher_is_better else 1
    ends = sorted((sign * low, sign * high))
    candidate = Candidate(
        "mse", "candidate", "mse", 1, 1, 1, "", {"cer": 0.0}, sign * drop, Interval(*ends, 0.95), {}, 0.9, 3, 1, 0.0
    )
    found = decide([candidate], "cer", 0.005, higher_is_better=higher_is_better)
    assert found.passed is passed
    assert headline in found.headline
