"""The report: safe with hostile content, the same every time, complete in itself, honest about what was not shown."""

from __future__ import annotations

import dataclasses
import io
import random
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image
from rich.console import Console

from calib.cli_study import print_result
from calib.errors import DataError
from calib.evaluate import Evaluation
from calib.evidence import Bound, Evidence, Interval, Power, Question, SliceEvidence, judge
from calib.evidence.power import required
from calib.metrics import SampleScore
from calib.quality.result import Duplicate, Duplicates, Quality
from calib.report import evidence_words as words
from calib.report import render, text
from calib.report.evidence_figures import sample_size
from calib.report.quality import quality_view
from calib.report.text import Status, compare, markdown, rare, signed, span
from calib.study import Finished
from calib.study.result import SetInfo, StudyResult
from calib.study.verdict import decide
from tests import evidence_case, quality_case
from tests.evidence_case import study
from tests.quality_case import IMG


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str, str]] = []
        self.ids: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(tag, key, value or "") for key, value in attrs]
        self.ids += [value or "" for key, value in attrs if key == "id"]

    def handle_data(self, data: str) -> None:
        self.text += data


def _page(html: str) -> _Page:
    page = _Page()
    page.feed(html)
    return page


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    render(study(folder), folder / "report", images=folder)
    return folder


def test_html_is_escaped_and_self_contained(rendered: Path) -> None:
    html = (rendered / "report/index.html").read_text()
    page = _page(html)
    assert not page.tags & {"script", "iframe", "object", "link", "b", "form", "base"}
    assert not [a for a in page.attributes if a[1].startswith("on")]
    for tag, key, value in page.attributes:
        if key in ("src", "href", "xlink:href"):
            assert value.startswith(("#", "data:image/png;base64,")), (tag, key, value)
        assert key != "style" or "url(http" not in value
    assert page.text.count(IMG) > 5
    assert len(page.ids) == len(set(page.ids))
    assert "default-src 'none'" in html
    assert len(html.encode()) < 2_000_000
    assert "\x00" not in html and "\u202e" not in html


def test_every_reference_within_the_page_has_its_target(rendered: Path) -> None:
    page = _page((rendered / "report/index.html").read_text())
    used = {value[1:] for _, key, value in page.attributes if key == "href"}
    used |= {value[5:-1] for _, key, value in page.attributes if key == "clip-path"}
    assert used <= set(page.ids)


def test_markdown_is_escaped(rendered: Path) -> None:
    source = (rendered / "report/report.md").read_text()
    page = _page(source)
    assert page.tags <= {"ins", "del", "br"}
    assert not page.attributes
    for line in source.splitlines():
        assert "](http" not in line.replace("\\](", "")
    rows = [
        line for line in source.splitlines() if line.startswith("| line-0") or ("onerror" in line and line[0] == "|")
    ]
    table = next(i for i, line in enumerate(source.splitlines()) if line.startswith("| sample |"))
    for line in source.splitlines()[table : table + 14]:
        assert line.replace("\\|", "").count("|") == 6, line
    assert rows
    assert "````sh" in source
    assert "| mse (best) |" in source
    assert "Amox<ins>l</ins>cillin 5<ins>O</ins>0 m<del>g</del>" in source


def test_figures_are_standalone_svg(rendered: Path) -> None:
    files = sorted((rendered / "report/figures").glob("*.svg"))
    tensors = [f"tensor-{i:02d}" for i in range(1, 7)]
    judged = ["clipped-1", "drift-1", "drift-2", "samples", "tensors"]
    assert [f.stem for f in files] == [
        "candidates",
        *(f"quality-{name}" for name in judged),
        "sample-size",
        "slice-values",
        "slices",
        *tensors,
    ]
    for file in files:
        root = ElementTree.parse(file).getroot()
        assert root.get("role") == "img" and root.get("aria-label")
        assert "#010203" not in file.read_text() and "DejaVu" not in file.read_text()
    names = "".join(file.read_text() for file in files)
    assert "percentile-99.999" in names
    assert len(list((rendered / "report/images").glob("*.png"))) == 20
    assert not list(rendered.rglob("*.tmp"))


def test_two_renders_give_the_same_bytes(rendered: Path, tmp_path: Path) -> None:
    render(study(tmp_path), tmp_path / "again", images=tmp_path)
    first = {p.relative_to(rendered / "report"): p.read_bytes() for p in (rendered / "report").rglob("*.*")}
    second = {p.relative_to(tmp_path / "again"): p.read_bytes() for p in (tmp_path / "again").rglob("*.*")}
    assert first == second


def test_samples_are_hidden_and_those_of_an_earlier_report_removed(tmp_path: Path) -> None:
    result = _light(tmp_path)
    render(result, tmp_path / "report", images=tmp_path)
    render(dataclasses.replace(result, include_samples=False), tmp_path / "report", images=tmp_path)
    html, source = (tmp_path / "report/index.html").read_text(), (tmp_path / "report/report.md").read_text()
    for content in (html, source):
        assert "Amoxicillin" not in content and "SECRETNAME" not in content and "data:image" not in content
        assert "this study does not include them" in content
        assert "line-0001" in content and "phone" in content
    assert not list((tmp_path / "report/images").glob("*"))


@pytest.mark.parametrize("path", ["../secret.png", "/etc/hostname", "samples/../../secret.png", "link.png", "a\x00b"])
def test_image_outside_the_run_folder_is_refused(tmp_path: Path, path: str) -> None:
    run = tmp_path / "run"
    result = _light(run)
    (tmp_path / "secret.png").write_bytes((run / "samples/0.png").read_bytes())
    (run / "link.png").symlink_to(tmp_path / "secret.png")
    flips = (dataclasses.replace(result.flips[0], image=path),)
    with pytest.raises(DataError, match="flip image"):
        render(dataclasses.replace(result, flips=flips), tmp_path / "report", images=run)
    assert not (tmp_path / "report/index.html").exists()


def test_image_must_be_a_png_that_exists(tmp_path: Path) -> None:
    result = _light(tmp_path)
    (tmp_path / "page.png").write_text("<svg/>")
    for path, message in (("page.png", "must be a PNG"), ("gone.png", "Cannot read")):
        flips = (dataclasses.replace(result.flips[0], image=path),)
        with pytest.raises(DataError, match=message):
            render(dataclasses.replace(result, flips=flips), tmp_path / "report", images=tmp_path)


def _light(folder: Path, found: Evidence | None = None) -> StudyResult:
    """Return the study without what takes long to draw."""
    return dataclasses.replace(study(folder, found), tensors=(), quality=None)


def _contents(folder: Path) -> tuple[str, str]:
    """Return what a reader sees of both pages, without the Markdown's escapes."""
    html, source = ((folder / "report" / name).read_text() for name in ("index.html", "report.md"))
    return _page(html).text, _page(source).text.replace("\\", "")


def test_renders_without_flips_tensors_slices_and_intervals(tmp_path: Path) -> None:
    result = _light(tmp_path)
    candidates = tuple(dataclasses.replace(c, slices={}, interval=None) for c in result.candidates)
    overall = evidence_case.no_interval("all samples belong to one group")
    found = dataclasses.replace(result.evidence, overall=overall, bound=None, power=None, slices=(), tested=0, notes=())
    bare = dataclasses.replace(
        result, flips=(), tensors=(), candidates=candidates, notes=(), description="", tracking_uri="",
        calibration=SetInfo(0, "", {}, 0), seconds={}, environment={}, evidence=found,
        verdict=dataclasses.replace(result.verdict, decision="deploy", passed=True),
    )  # fmt: skip
    render(bare, tmp_path / "report", images=tmp_path)
    for content in _contents(tmp_path):
        for sentence in ("No flips were recorded", "No tensor ranges", "defines no slices", "chance is not ruled out",
                         "budget cannot be said: all samples belong to one group"):  # fmt: skip
            assert sentence in content
    figures = {path.stem for path in (tmp_path / "report/figures").iterdir()}
    assert "sample-size" not in figures and "slices" not in figures and "slice-values" not in figures


@pytest.mark.parametrize(
    ("decision", "tone"),
    [("deploy", "good"), ("deploy with layers in FP16", "good"), ("not enough data", "open"), ("keep FP16", "bad"),
     ("keep FP32", "bad")],
)  # fmt: skip
def test_the_decision_is_the_pill(tmp_path: Path, decision: str, tone: str) -> None:
    result = dataclasses.replace(_light(tmp_path), flips=())
    verdict = dataclasses.replace(result.verdict, decision=decision)
    render(dataclasses.replace(result, verdict=verdict), tmp_path / "report", images=tmp_path)
    html = (tmp_path / "report/index.html").read_text()
    assert f'<section id="verdict" class="verdict {tone}">\n<span class="pill">{decision}</span>' in html
    assert f"**{decision}.**" in (tmp_path / "report/report.md").read_text()


def test_an_interval_across_the_budget_is_not_shown_rather_than_passed(tmp_path: Path) -> None:
    result = _light(tmp_path, evidence_case.evidence(shown="open"))
    assert result.verdict.decision == "not enough data"
    render(result, tmp_path / "report", images=tmp_path)
    for content in _contents(tmp_path):
        assert "on both sides of the budget of 0.0050: neither is shown" in content
        assert "The best of 5 was chosen on these samples, so its interval is at 99 %" in content
    assert (
        "| mse (best) | 0.0178 | 0.8837 | +0.0040 | +0.0005 to +0.0086 | not shown |"
        in (tmp_path / "report/report.md").read_text()
    )
    passed = dataclasses.replace(result, verdict=dataclasses.replace(result.verdict, passed=True))
    render(passed, tmp_path / "report", images=tmp_path)
    assert "its interval is not wholly within the budget" in (tmp_path / "report/index.html").read_text()


def test_the_slice_that_loses_most_is_named_with_its_interval(rendered: Path) -> None:
    for content in _contents(rendered):
        for sentence in (
            "Loses most: device = fax, +0.0210 (+0.0070 to +0.0392) on 64 samples, adjusted p 0.006: worse than FP32 even",
            f"Also worse by more than the budget: device = fax, la<b>el| = {IMG}; x: edges < 0.03.",
            "8 slices were tested together, and Holm's correction", "at most 5 %", "tested on the other",
            "14 broken, 8 fixed", "probability 0.29 (McNemar's exact test)", f"{IMG} has no cer",
        ):  # fmt: skip
            assert sentence in content, sentence
    html = (rendered / "report/index.html").read_text()
    rows = html.split('id="slices"')[1].split("</section>")[0]
    pills = [part.split("<")[0] for part in rows.split('<span class="pill ')[1:]]
    assert pills == ['bad">worse', 'neutral">too few', 'open">slightly worse', 'open">not shown', 'good">within budget',
                     'bad">worse', 'open">not shown', 'good">within budget', 'bad">worse']  # fmt: skip


def test_slices_with_too_few_samples_are_a_caution_of_a_model_that_passes(tmp_path: Path) -> None:
    result = _light(tmp_path, evidence_case.evidence(worse=False))
    assert result.verdict.decision == "deploy"
    render(result, tmp_path / "report", images=tmp_path)
    for content in _contents(tmp_path):
        assert "passed mse, but has too few samples for a verdict on: device = thermal." in content
        assert f"Loses most: la<b>el| = {IMG}, +0.0041" in content and "Also worse" not in content


def test_of_many_slices_the_page_stays_small_and_says_what_it_folds(tmp_path: Path) -> None:
    found = evidence_case.evidence()
    column, pair = found.slices[0], found.slices[5]
    many = (
        *(dataclasses.replace(column, name=f"site = {i} {IMG}") for i in range(50)),
        *(dataclasses.replace(pair, name=f"site = {i}, device = fax {IMG}") for i in range(400)),
    )
    result = dataclasses.replace(_light(tmp_path), evidence=dataclasses.replace(found, slices=many, tested=450))
    render(result, tmp_path / "report", images=tmp_path)
    html = (tmp_path / "report/index.html").read_text()
    assert len(html.encode()) < 2_000_000
    text = _page(html).text
    assert "Show the other 414 slices" in text  # 26 columns and 388 pairs
    assert "The first 24 of 450 slices are drawn" in text and "450 slices were tested together" in text
    assert "and 443 more." in text
    assert (tmp_path / "report/report.md").read_text().count(", device = fax &lt;img") >= 400


def test_a_metric_without_right_and_wrong(tmp_path: Path) -> None:
    result = _light(tmp_path)
    candidates = tuple(dataclasses.replace(c, broken=None, fixed=None) for c in result.candidates)
    found = dataclasses.replace(result.evidence, decisions=None)
    plain = dataclasses.replace(result, candidates=candidates, evidence=found, flips=())
    render(plain, tmp_path / "report", images=tmp_path)
    for content in _contents(tmp_path):
        assert content.count("this metric knows no right and wrong") == 2  # a fact, and where flips would be
        assert "This metric knows no right and wrong, so no sample is broken or fixed" in content
        assert "None" not in content.replace("None in this study", "")
    assert (
        "| max | 0.0408 | 0.8147 | +0.0251 | +0.0179 to +0.0345 | over budget | 84.2 % | – |"
        in (tmp_path / "report/report.md").read_text()
    )


def test_flips_are_ordered_by_the_margin_they_lost(tmp_path: Path) -> None:
    result = _light(tmp_path)
    shuffled = tuple(random.Random(1).sample(result.flips, len(result.flips)))
    render(dataclasses.replace(result, flips=shuffled), tmp_path / "report", images=tmp_path)
    lines = (tmp_path / "report/report.md").read_text().splitlines()
    told = [line.split("<br>")[1].split(" |")[0] for line in lines if "-00" in line and line.startswith("| ")]
    lost = [float(t.removeprefix("margin lost: ")) for t in told if t.startswith("margin lost")]
    gained = [float(t.removeprefix("margin gained: ")) for t in told if t.startswith("margin gained")]
    assert lost == sorted(lost, reverse=True) and len(lost) == 13
    assert gained == sorted(gained, reverse=True) and len(gained) == 6
    assert told[13].startswith("device:") and len(told) == 20  # the broken one without a margin comes last of its kind
    assert "those first whose right answer lost most of its margin" in (tmp_path / "report/index.html").read_text()


@pytest.mark.parametrize(
    ("margin", "drop", "error", "status"),
    [(0.005, 0.002, 0.001, "within"), (0.005, -0.02, 0.004, "within"), (0.005, 0.4, 0.05, "over"), (0.0, 0.001, 0.01, "unshown"),
     (0.005, 0.00499, 0.02, "unshown"), (0.5, 0.0, 1e-6, "within")],
)  # fmt: skip
def test_the_figure_of_the_sample_size(margin: float, drop: float, error: float, status: Status) -> None:
    deviation = error * 20
    power = Power(
        0.8, 2.802 * error, required(margin, 0.0, deviation) if margin > 0 else None,
        required(margin, max(drop, 0.0), deviation), 400,
    )  # fmt: skip
    bound = Bound(margin, drop, drop - 2 * error, drop + 2 * error, 0.95, 1, "open")
    drawn = sample_size("s", power, bound, status, metric="CER", unit="sample", description="d")
    root = ElementTree.fromstring(drawn.file)
    width, height = (float(side) for side in root.get("viewBox", "").split()[2:])
    assert 500 < width < 640 and 150 < height < 300  # no label is far outside
    texts = [item.text or "" for item in root.findall(".//{*}text")]
    assert "this study, 400 samples" in texts and "budget" in texts and not any("nan" in text for text in texts)
    if (margin, drop) == (0.005, 0.002):
        assert f"{power.needed_if_equal:,}" in texts and f"{power.needed_as_seen:,}" in texts


def test_the_words_of_a_score_of_which_more_is_better() -> None:
    better, worse = (evidence_case.difference(delta, 0.01) for delta in (0.02, -0.03))
    slices = tuple(
        SliceEvidence("column", name, found, 0.01, 0.02, "worse")
        for name, found in (("a = 1", better), ("b = 2", worse))
    )
    found = dataclasses.replace(evidence_case.evidence(), higher_is_better=True, slices=slices, tested=2)
    assert words.worst(found).startswith(
        "Loses most: b = 2, \u22120.0300 (\u22120.0400 to \u22120.0170) on 364 samples"
    )
    assert words.worst(dataclasses.replace(found, slices=slices[:1])) == "No slice with enough samples loses anything."
    few = dataclasses.replace(slices[1], verdict="too few")
    assert words.worst(dataclasses.replace(found, slices=(few,))) == "No slice has enough samples for a verdict."
    gain = Bound(0.005, -0.02, -0.03, -0.001, 0.95, 1, "within")
    assert words.bound(dataclasses.replace(found, bound=gain)) == (
        "Nothing is lost: the whole 95 % interval of the drop is at or below 0, within the budget of 0.0050."
    )


def _evaluation(right: npt.NDArray[np.bool_]) -> Evaluation:
    scores = tuple(
        SampleScore(str(int(one)), {"accuracy": (float(one), 1.0)}, bool(one), 1.0 if one else -1.0) for one in right
    )
    ids = tuple(f"s{i}" for i in range(len(right)))
    return Evaluation("m", "d", "r", {"accuracy": True}, {"accuracy": "ratio"}, ids, ids, scores)


def test_a_planted_slice_is_found_and_named_by_the_real_judge(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    device = np.where(np.arange(1000) % 20 == 0, "fax", "scanner")  # 5 %
    was = generator.random(1000) < 0.95
    now = np.where(device == "fax", was & (generator.random(1000) < 0.6), was)
    asked = Question("mse", "accuracy", 0.05, 5, _evaluation(was), _evaluation(now), columns={"device": list(device)})
    found = judge(asked)
    base = _light(tmp_path)
    candidates = tuple(dataclasses.replace(c, metrics={"accuracy": 0.95 + c.delta}, slices={}) for c in base.candidates)
    result = dataclasses.replace(
        base, evidence=found, candidates=candidates, budget_metric="accuracy", higher_is_better={"accuracy": True},
        max_drop=0.05, flips=(), tensors=(), verdict=decide(candidates, found, kept_in_float=0),
    )  # fmt: skip
    assert result.verdict.decision == "keep FP16" and found.slices[0].name == "device = fax"
    interval = found.slices[0].difference.interval
    assert interval is not None
    render(result, tmp_path / "report", images=tmp_path)
    sentence = f"Loses most: device = fax, {signed(found.slices[0].difference.delta)} ({span(interval)}) on 50 samples"
    for content in _contents(tmp_path):
        assert sentence in content and "worse than FP32 even after correction, and by more than the budget" in content


def _printed(result: StudyResult, folder: Path) -> list[str]:
    console = Console(width=120, file=io.StringIO(), soft_wrap=True)
    print_result(Finished(folder, result), console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_the_terminal_shows_the_decision_and_the_evidence(tmp_path: Path) -> None:
    lines = _printed(_light(tmp_path), tmp_path)
    table = [line.rstrip() for line in lines[: next(i for i, line in enumerate(lines) if line.startswith("keep FP16"))]]
    assert max(map(len, table)) <= 120 and not any("\u2026" in line for line in table)
    assert any(line.startswith(" fp16 (reference)") and "0.0158" in line for line in table)
    assert any(line.startswith("keep FP16: INT8 (mse) keeps CER within 0.005 of FP32 overall") for line in lines)
    text = "\n".join(lines)
    for part in ("99 % interval", "best of 5 on these samples", "device = fax loses most: +0.0210", "McNemar", IMG,
                 "The smallest drop that 88 groups would show",
                 f"Also worse by more than the budget: device = fax, la<b>el| = {IMG};",
                 "8 slices were tested together"):  # fmt: skip
        assert part in text, part


def test_the_terminal_shows_dashes_and_no_markup_of_names(tmp_path: Path) -> None:
    base = _light(tmp_path)
    candidates = tuple(
        dataclasses.replace(
            c, broken=None, fixed=None, interval=None, metrics={f"score_{i}": 0.5 for i in range(9)} | c.metrics
        )
        for c in base.candidates
    )
    slices = (dataclasses.replace(base.evidence.slices[0], name="[red]x[/red]"),)
    found = dataclasses.replace(base.evidence, slices=slices, decisions=None, power=None)
    verdict = dataclasses.replace(base.verdict, reasons=("[bold]said[/bold]",))
    lines = _printed(dataclasses.replace(base, candidates=candidates, evidence=found, verdict=verdict), tmp_path)
    row = next(line for line in lines if line.startswith(" mse")).split()
    assert row == ["mse", "0.0178", "0.5000", "0.5000", "+0.0021", "\u2013", "95.1%", "\u2013", "\u2013", "3.0"]
    text = "\n".join(lines)
    assert "Loses most: [red]x[/red], +0.0210" in text and "[bold]said[/bold]" in text


def test_the_judgement_of_the_calibration_set_is_shown_and_warned_of(rendered: Path) -> None:
    for name in ("index.html", "report.md"):
        page = _page((rendered / "report" / name).read_text()).text.replace("\\", "")
        for sentence in (
            "With 128 samples 4 of 30 scales (mse) may be off by more than 1 %", "About 1,500 samples would do",
            "more than 128", "Not one calibration sample is of device = thermal: the scales never saw such data",
            "62.0 % of its samples lose more", "1 calibration sample is in evaluation too, and 14 nearly. What is found",
            "The calibration set and evaluation differ", "1 exact, 14 near", "The other 20 scales may be off by",
        ):  # fmt: skip
            assert sentence in page, (name, sentence)
        assert "Not one calibration sample comes from" not in page  # the same as the second, said once
        for hostile in (
            quality_case.NAMES[0],
            "a|b[/red]",
            f"note {IMG}",
            f"hash {IMG}",
            f"line-{IMG}",
            f"la<b>el| = {IMG}",
        ):
            assert hostile in page, (name, hostile)
    html = (rendered / "report/index.html").read_text()
    assert '<tr class="best"><th scope="row">mse</th><td>364</td>' in html  # the best candidate's scales among all
    assert 'class="pill bad">slice missing' in html and 'class="pill good">alike' in html


def test_a_good_calibration_set_gives_no_caution(tmp_path: Path) -> None:
    found = dataclasses.replace(evidence_case.evidence(worse=False), slices=())
    result = dataclasses.replace(
        study(tmp_path, found),
        tensors=(),
        flips=(),
        quality=quality_case.good(),
        calibration=SetInfo(128, "cd" * 32, {}, 31),
    )
    render(result, tmp_path / "report", images=tmp_path)
    html, source = (tmp_path / "report/index.html").read_text(), (tmp_path / "report/report.md").read_text()
    for content in (html, source):
        assert "32 of the 128 samples would do" in content
        assert "No slices were named" in content
    assert 'class="caution"' not in html and "Caution:" not in source
    answers = html.split('<dl class="answers">')[1].split("</dl>")[0]
    assert answers.count('class="pill good"') == 4 and answers.count("pill") == 4


def test_what_was_not_judged_is_said_and_its_figures_are_removed(tmp_path: Path) -> None:
    result = dataclasses.replace(study(tmp_path), tensors=(), flips=())
    render(result, tmp_path / "report", images=tmp_path)
    assert list((tmp_path / "report/figures").glob("quality-*"))
    nothing = Quality(16, None, (), (), (), ("No model was given.",))
    for quality, sentences in (
        (nothing, ("Whether there are enough samples was not judged", "clip of other data was not judged",
                   "looks like other data was not judged", "on both sides was not judged", "No model was given")),
        (None, ("was not judged in this study",)),
    ):  # fmt: skip
        render(dataclasses.replace(result, quality=quality), tmp_path / "report", images=tmp_path)
        assert not list((tmp_path / "report/figures").glob("quality-*"))
        for name in ("index.html", "report.md"):
            for sentence in sentences:
                assert sentence in (tmp_path / "report" / name).read_text(), (name, sentence)
        assert "Not one calibration sample comes from: thermal" in (tmp_path / "report/index.html").read_text()


@pytest.mark.parametrize(
    ("tensors", "sizes", "worst"),
    [(1, (8, 16), 0.034), (2, (4, 8, 16), 5.0), (7, (16, 32, 64, 128), 0.0), (300, (8, 16, 32, 64, 128), 0.011)],
)
def test_figures_of_few_and_of_many_tensors(tensors: int, sizes: tuple[int, ...], worst: float) -> None:
    clipped = dataclasses.replace(quality_case.coverage(tensors=tensors), worst=())
    zero = tuple(dataclasses.replace(clip, share=0.0, calibration=None) for clip in clipped.tensors)
    part = quality_case.drift(tensors=tensors, beyond=False, detectable=0.5)
    judged = Quality(
        sizes[-1], quality_case.sufficiency(tensors, sizes, worst=worst, known=False),
        (clipped, dataclasses.replace(clipped, tensors=zero, slices=zero)), (dataclasses.replace(part, shifts=()), part),
        (Duplicates("evaluation", 0, 1, (Duplicate("a", "b", "near", 0.9),), "hash"),), (),
    )  # fmt: skip
    shown = quality_view(judged, "mse")
    assert [answer.word for answer in shown.answers] == [
        "enough" if worst == 0 else "more needed", "slice missing", "slice missing", "not shown", "not shown", "duplicates",
    ]  # fmt: skip
    for drawing in shown.drawings:
        root = ElementTree.fromstring(drawing.file)
        width, height = (float(side) for side in root.get("viewBox", "").split()[2:])
        assert 500 < width < 700 and 100 < height < 800
        texts = [item.text or "" for item in root.findall(".//{*}text")]
        assert texts and not any("nan" in text for text in texts)
    assert len(shown.drawings) == 6


def test_large_images_are_left_out_of_the_page_and_said_so(tmp_path: Path) -> None:
    result = _light(tmp_path)
    noise = Image.frombytes("L", (900, 900), random.Random(1).randbytes(810_000))
    noise.save(tmp_path / "samples/1.png")
    noise.save(tmp_path / "samples/2.png")
    render(result, tmp_path / "report", images=tmp_path)
    html = (tmp_path / "report/index.html").read_text()
    assert len(html) < 2_000_000
    assert html.count("image not embedded") == 1
    assert len(list((tmp_path / "report/images").glob("*.png"))) == 20


@pytest.mark.parametrize(
    ("low", "high", "up", "expected"),
    [(0, 0.004, False, "within"), (0, 0.006, False, "unshown"), (0.006, 0.009, False, "over"),
     (-0.004, 0.0, True, "within"), (-0.006, 0.0, True, "unshown"), (-0.009, -0.006, True, "over"),
     (float("nan"), 0.1, False, "unknown")],
)  # fmt: skip
def test_judge(low: float, high: float, up: bool, expected: str) -> None:
    interval = Interval(low, high, 0.95)
    assert text.judge((low + high) / 2, interval, max_drop=0.005, higher_is_better=up) == expected


def test_numbers_and_texts() -> None:
    assert [signed(x) for x in (0.00421, -0.0031, 0.0, -0.00001)] == ["+0.0042", "\u22120.0031", "0.0000", "0.0000"]
    assert signed(float("nan")) == "not a number"
    assert [rare(x) for x in (0, 1e-9, 3.2e-5, 0.0123)] == ["0", "< 0.0001 %", "0.0032 %", "1.2 %"]
    assert [(s.kind, s.text) for s in compare("cat no. 1", "cut no 1")] == [
        ("same", "c"), ("wrong", "u"), ("same", "t no"), ("missing", "."), ("same", " 1"),
    ]  # fmt: skip
    assert [s.kind for s in compare("melanoma", "nevus")] == ["wrong"]
    assert str(markdown("# a|b @me <b> https://x.y")) == "&#35; a\\|b &#64;me &lt;b&gt; https:&#47;/x.y"
    assert str(markdown("- 1")) == "\\- 1"


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium here; .ci/run installs it")
@pytest.mark.parametrize("width", [390, 1200])
def test_a_browser_shows_the_page_without_a_complaint(rendered: Path, tmp_path: Path, width: int) -> None:
    quiet = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    command = ["chromium", *quiet.split(), "--disable-component-update", "--disable-sync", "--hide-scrollbars"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},2000", "--enable-logging=stderr"]
    page = (rendered / "report/index.html").as_uri()
    shown = subprocess.run([*command, "--dump-dom", page], capture_output=True, text=True, timeout=60, check=True)
    assert "CONSOLE" not in shown.stderr, shown.stderr
    assert shown.stdout.count("<svg") == (rendered / "report/index.html").read_text().count("<svg") > 3
    picture = tmp_path / "page.png"
    subprocess.run([*command, f"--screenshot={picture}", page], capture_output=True, timeout=60, check=True)
    with Image.open(picture) as image:
        assert image.size == (width, 2000)
        assert len(image.convert("RGB").getcolors(1 << 24) or []) > 50
