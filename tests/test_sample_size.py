"""How many samples a margin needs: the formula keeps what it promises, and says where it cannot."""

from __future__ import annotations

import dataclasses
import json
import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from calib.errors import ConfigError
from calib.evidence import planning
from calib.evidence.difference import difference
from calib.evidence.power import assess
from calib.study.codec import load, save
from tests import evidence_case
from tests.conftest import assert_refused, run_calib, write_study


@cache
def shown(n: int, broken: int, fixed: int, margin: float) -> bool:
    same = np.ones(n - broken - fixed)
    was, now = (np.concatenate([np.full(broken, x), np.full(fixed, 1 - x), same]) for x in (1.0, 0.0))
    one = np.ones(n)
    found = difference("ratio", np.stack([was, one], 1).tolist(), np.stack([now, one], 1).tolist()).interval
    return found is not None and -found.low <= margin


@pytest.mark.parametrize(("margin", "broken", "fixed", "power"), [(0.1, 0.1, 0.08, 0.8), (0.12, 0.1, 0.08, 0.9)])
def test_with_so_many_samples_the_margin_is_shown_about_so_often(
    margin: float, broken: float, fixed: float, power: float
) -> None:
    size = planning.of_flips(margin, broken, fixed, level=0.95, power=power)
    n = size.asked.as_expected
    assert n is not None and not size.few
    counts = np.random.default_rng(5).multinomial(n, [broken, fixed, 1 - broken - fixed], 200)
    often = sum(shown(n, int(b), int(f), margin) for b, f, _ in counts)
    low, high = stats.binom.interval(0.998, 200, power)
    assert low - 10 <= often <= high + 10  # the interval is a bit longer than the normal one of the formula


@given(st.floats(0.001, 0.2), st.floats(0.001, 0.2), st.floats(0.001, 0.2), st.floats(0.55, 0.95))
def test_more_power_or_less_margin_needs_more(margin: float, broken: float, fixed: float, power: float) -> None:
    size = planning.of_flips(margin, broken, fixed, level=0.95, power=power)
    assert [need.power for need in size.needs] == sorted({0.8, 0.9, power})
    for column in ("if_equal", "as_expected"):
        numbers = [getattr(need, column) for need in size.needs]
        assert all(number is None for number in numbers) or numbers == sorted(numbers)
    wider = planning.of_flips(margin * 1.5, broken, fixed, level=0.95, power=power).asked
    assert size.asked.if_equal is not None and wider.if_equal is not None and wider.if_equal <= size.asked.if_equal
    assert (size.asked.as_expected is None) == (broken - fixed >= margin)


def test_it_is_connors_formula() -> None:
    size = planning.of_flips(0.03, 0.02, 0.01, level=0.95, power=0.8)
    z = stats.norm.ppf(0.975) + stats.norm.ppf(0.8)
    assert size.asked.as_expected == math.ceil(z**2 * (0.03 - 0.01**2) / 0.02**2)
    assert size.asked.if_equal == math.ceil(z**2 * 0.03 / 0.03**2)
    assert size.few and not planning.of_flips(0.05, 0.3, 0.29, level=0.95, power=0.8).few


def test_without_a_change_it_is_the_rule_of_three() -> None:
    size = planning.of_flips(0.01, 0.0, 0.0, level=0.95, power=0.8)
    n = size.asked.as_expected
    assert n == size.asked.if_equal == 368
    assert shown(n, 0, 0, 0.01) and not shown(n - 1, 0, 0, 0.01)


def test_a_run_gives_what_its_evidence_says() -> None:
    found = evidence_case.evidence().overall
    size = planning.of_run(found, 0.005, higher_is_better=False, level=0.99, power=0.8)
    power = assess(found, 0.005, higher_is_better=False, level=0.99)
    assert power is not None
    assert (size.asked.if_equal, size.asked.as_expected) == (power.needed_if_equal, power.needed_as_seen)
    assert size.samples == power.samples == 88 and size.detectable == pytest.approx(power.detectable)
    better = planning.of_run(found, 0.005, higher_is_better=True, level=0.99, power=0.8)
    assert better.drop == 0 and better.asked.if_equal == better.asked.as_expected
    same = [(0.0, 1.0)] * 60
    unchanged = difference("ratio", same, same)
    size = planning.of_run(unchanged, 0.05, higher_is_better=True, level=0.95, power=0.9)
    assert unchanged.interval is not None and size.detectable == pytest.approx(unchanged.interval.high)
    assert size.asked.as_expected == 72
    with pytest.raises(ConfigError, match="no class"):
        planning.of_run(evidence_case.no_interval("no class"), 0.05, higher_is_better=True, level=0.95, power=0.9)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--margin", 0.01], "--broken"),
        (["--broken", 0.01], "--margin"),
        (["--margin", -1, "--broken", 0.01], "margin must be 0 or more"),
        (["--margin", "nan", "--broken", 0.01], "margin must be 0 or more"),
        (["--margin", 0.01, "--broken", 0.7, "--fixed", 0.6], "shares"),
        (["--margin", 0.01, "--broken", -0.1], "shares"),
        (["--margin", 0.01, "--broken", "nan"], "shares"),
        (["--margin", 0.01, "--broken", 0.1, "--power", 1], "power"),
        (["--margin", 0.01, "--broken", 0.1, "--power", 0.2], "power"),
        (["--margin", 0.01, "--broken", 0.1, "--level", 1], "level"),
        (["--margin", 0.01, "--broken", 0.1, "--level", 0], "level"),
        (["--run", "nowhere", "--broken", 0.1], "--broken"),
        (["--run", "nowhere"], "nowhere"),
    ],
)
def test_what_is_wrong_is_said(options: list[object], says: str, calib) -> None:
    assert_refused(calib("sample-size", *options), says)


def test_the_command_prints_and_counts(calib) -> None:
    answer = calib("sample-size", "--margin", 0.05, "--broken", 0.3, "--fixed", 0.29)
    assert answer.status == 0
    document = json.loads(calib("sample-size", "--margin", 0.05, "--broken", 0.3, "--fixed", 0.29, "--json").out)
    number = document["size"]["needs"][0]["as_expected"]
    assert (
        f"{number:,} samples show that accuracy drops by no more than 0.05, in 8 of 10 studies (95 % interval)"
        in answer.out
    )
    assert "fewer than" not in answer.out
    few = calib("sample-size", "--margin", 0.005, "--broken", 0.001, "--power", 0.85)
    assert few.status == 0 and "fewer than 30" in few.out and "85%" in few.out and "in 8.5 of 10 studies" in few.out
    none = calib("sample-size", "--margin", 0.01, "--broken", 0.03, "--fixed", 0.01)
    assert none.status == 0 and "No number of samples would do" in none.out and "none" in none.out


def test_a_run_counts_groups_by_their_column(tmp_path: Path, calib) -> None:
    study = write_study(
        tmp_path / "study", ('["max", "mse", "entropy"]', '["max"]'), ("noise_control", "# noise_control")
    )
    assert run_calib("run", study, "--runs", tmp_path / "runs", "--no-track").status == 0
    (run,) = (tmp_path / "runs/small").iterdir()
    result = load(run / "study.json")
    assert result.evidence.power is not None
    for path in (run, run.parent):
        answer = calib("sample-size", "--run", path)
        assert answer.status == 0
        assert f"{result.evidence.power.needed_as_seen} groups of samples by 'page' show that CER drops" in answer.out
        assert f"The {result.evidence.overall.groups} groups of samples by 'page' of the run" in answer.out
    assert "0.2 in" not in answer.out and "no more than 0.05," in answer.out
    assert "no more than 0.2," in calib("sample-size", "--run", run, "--margin", 0.2).out
    save(dataclasses.replace(result, evidence=dataclasses.replace(
        result.evidence, overall=evidence_case.no_interval("one class only"), bound=None)), run / "study.json")  # fmt: skip
    assert_refused(calib("sample-size", "--run", run), "one class only")
