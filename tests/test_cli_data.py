"""What is printed of a judgement: every question answered, nothing of the data taken for markup, lines that fit."""

from __future__ import annotations

import dataclasses
import io

import pytest
from rich.console import Console

from calib.cli_data import print_comparison, print_quality
from calib.quality.result import Quality
from tests import quality_case


def _console() -> Console:
    return Console(file=io.StringIO(), width=120)


def _text(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def _printed(quality: Quality) -> tuple[str, str]:
    """Return what is printed, as it stands and with its lines joined."""
    console = _console()
    print_quality(quality, console)
    shown = _text(console)
    assert max(map(len, shown.splitlines())) <= 120
    return shown, " ".join(shown.split())


def test_a_bad_set_is_called_bad_and_names_stay_as_they_are() -> None:
    shown, joined = _printed(quality_case.quality())
    for sentence in (
        "more needed With 128 samples 4 of 30 scales (mse)", "About 1,500 samples would do", "25 more tensors need fewer",
        "slice missing Of the 364 samples of evaluation max clips 0.0021 %", "Not one calibration sample is of device = thermal.",
        "drift The calibration set and evaluation differ", "duplicates 1 calibration sample is in evaluation too, and 14",
        "alike No difference to log", "10 more pairs",
    ):  # fmt: skip
        assert sentence in joined, sentence
    assert shown.count("beyond") >= 4
    assert "[red]a|b[/red] `c` $x$ \ufffd" in shown and quality_case.IMG in joined
    assert "\x01" not in shown and "\x1b" not in shown


def test_a_good_set_is_called_good() -> None:
    shown, joined = _printed(quality_case.good())
    for sentence in (
        "enough 32 of the 128 samples would do",
        "held Of the 364",
        "alike No difference",
        "none No sample is also in",
    ):
        assert sentence in joined, sentence
    assert "beyond the limit of 0.33" in joined and "beyond\n" not in shown


def test_what_was_not_judged_is_said() -> None:
    _, joined = _printed(Quality(16, None, (), (), (), ("No model [b]was given.",)))
    assert joined.startswith("note No model [b]was given.")
    assert joined.count("not judged") == 8  # four questions, each with a word and a sentence


@pytest.mark.parametrize("tensors", [1, 300])
def test_few_and_many_tensors(tensors: int) -> None:
    quality = dataclasses.replace(
        quality_case.quality(),
        sufficiency=quality_case.sufficiency(tensors, (8, 16), known=False),
        coverage=(quality_case.coverage(tensors=tensors, slices=False),),
        drift=(quality_case.drift(tensors=tensors),),
    )
    shown, joined = _printed(quality)
    assert "How many would do cannot be said" in joined
    assert len(shown.splitlines()) < 60


@pytest.mark.parametrize(
    ("less", "sentence"),
    [
        ("first", "The first clips less (random"),
        ("second", "The second clips less ([red]a|b[/red]"),
        ("equal", "Both clip alike on 364"),
    ],
)
def test_comparison(less: str, sentence: str) -> None:
    console = _console()
    print_comparison(dataclasses.replace(quality_case.comparison(), less_clipping=less), console)
    joined = " ".join(_text(console).split())
    assert sentence in joined
    assert "0.0030 % against 0.0010 % of all values" in joined
    assert "4 of 30 scales (mse) differ by more than resampling explains; by chance about 2 would" in joined
    assert "20 more tensors differ less" in joined and "1.30\u00d7 \u00b14 %" in joined
    assert max(map(len, _text(console).splitlines())) <= 120
