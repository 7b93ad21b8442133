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

import pytest
from PIL import Image, ImageDraw

from calib.errors import DataError
from calib.quality.result import Duplicate, Duplicates, Quality
from calib.report import render
from calib.report.quality import quality_view
from calib.report.text import compare, judge, markdown, rare, signed
from calib.study.result import (
    Built,
    Candidate,
    Flip,
    Interval,
    LayerPrecision,
    ModelInfo,
    SetInfo,
    SliceScore,
    StudyResult,
    TensorRange,
    Verdict,
)
from tests import quality_case
from tests.quality_case import IMG

HOSTILE = (IMG, "</script><script>alert(1)</script>", "a|b", "`tick` *star* [x](http://e.example)", "nul\x00\u202eesc")
DEVICES = {"flatbed": 180, "fax": 64, "phone": 96, "thermal": 24}
# name, kind, delta, half width, agreement, broken, fixed
CANDIDATES = (
    ("fp32", "baseline", 0.0, 0.0, 1.0, 0, 0),
    ("max", "candidate", 0.0251, 0.0072, 0.842, 41, 5),
    ("percentile-99.99", "candidate", 0.0118, 0.0046, 0.901, 24, 6),
    ("percentile-99.999", "candidate", 0.0064, 0.0032, 0.924, 18, 7),
    ("mse", "candidate", 0.0021, 0.0019, 0.951, 14, 8),
    ("entropy", "candidate", 0.0047, 0.0028, 0.937, 14, 7),
    ("noise-max", "control", 0.4120, 0.031, 0.214, 260, 0),
    ("noise-mse", "control", 0.0330, 0.0080, 0.803, 52, 4),
)


def _slices(delta: float, half: float, *, baseline: bool) -> dict[str, dict[str, SliceScore]]:
    weight = {"flatbed": 0.5, "fax": 2.1, "phone": 1.2, "thermal": 1.0}
    level = {"flatbed": 0.008, "fax": 0.035, "phone": 0.018, "thermal": 0.022}
    scores = {}
    for device, samples in DEVICES.items():
        shift = delta * weight[device]
        wide = half * (360 / samples) ** 0.5
        interval = None if baseline else Interval(shift - wide, shift + wide, 0.95)
        scores[device] = SliceScore(samples, level[device] + shift, shift, interval)
    return {"device": scores, "la<b>el|": {IMG: scores["fax"]}}


def _candidate(row: tuple[str, str, float, float, float, int, int]) -> Candidate:
    name, kind, delta, half, agreement, broken, fixed = row
    baseline = kind == "baseline"
    return Candidate(
        name=name, kind=kind, calibrator="" if baseline else name.removeprefix("noise-"),
        int8_layers=0 if baseline else 51, total_layers=51, size_bytes=10_857_958 if baseline else 3_012_400,
        sha256=f"{abs(hash(1)) + len(name):064x}", metrics={"cer": 0.0157 + delta, "exact_match": 0.89 - 3 * delta},
        delta=delta, interval=None if baseline else Interval(delta - half, delta + half * 1.3, 0.95),
        slices=_slices(delta, half, baseline=baseline), agreement=agreement, broken=broken, fixed=fixed, seconds=12.3,
    )  # fmt: skip


def _tensor(index: int, name: str) -> TensorRange:
    amax = 2.0 ** (index + 1.3)
    edges = tuple(-20 + k / 8 for k in range(int((20 + index + 1.5) * 8) + 1))
    middle = -2.5 + index / 2
    raw = [2.0 ** (-abs(e - middle) * (1.1 if e < middle else 3.2 - index * 0.3)) for e in edges[:-1]]
    kept = {"max": 1.0, "percentile-99.99": 0.31, "percentile-99.999": 0.55, "mse": 0.52, "entropy": 0.22,
            "noise-max": 0.02, "noise-mse": 0.018}  # fmt: skip
    return TensorRange(
        tensor=name, consumers=("Conv.12", IMG), amax=amax, edges_log2=edges, share=tuple(r / sum(raw) for r in raw),
        zeros=0.183, thresholds={k: amax * v for k, v in kept.items()},
        clipped={k: 0.0 if v == 1 else 1e-6 / v**3 for k, v in kept.items()},
        sqnr_db={k: 34 - 20 * abs(v - 0.5) - index for k, v in kept.items()},
    )  # fmt: skip


def _flips(folder: Path) -> tuple[Flip, ...]:
    words = ("Patient No. 20417", "Rechnungsbetrag 1.249,00", "Amoxicillin 500 mg", "Lot  77A-09/B", "合計 ￥1,280")
    (folder / "samples").mkdir(parents=True, exist_ok=True)
    generator = random.Random(3)
    flips = []
    for index in range(20):
        target = words[index % 5] if index % 4 else HOSTILE[index // 4 % len(HOSTILE)]
        wrong = target.replace("0", "O", 1).replace("i", "l", 1)[: len(target) - generator.randrange(2)]
        wrong += "x"[: index % 2]
        kind = "fixed" if index >= 14 else "broken"
        image = Image.new("L", (320, 48), 235)
        ImageDraw.Draw(image).text((8, 14), "".join(c for c in target if 31 < ord(c) < 127), fill=30, font_size=22)
        buffer = io.BytesIO()
        image.save(buffer, "PNG")
        path = folder / "samples" / f"{index}.png"
        path.write_bytes(buffer.getvalue())
        flips.append(
            Flip(
                candidate="mse", kind=kind, sample=f"{IMG if index == 8 else 'line'}-{index:04d}",
                metadata={"device": list(DEVICES)[index % 4], "operator": f"SECRETNAME{index}"}, target=target,
                baseline_prediction=target if kind == "broken" else wrong,
                prediction=wrong if kind == "broken" else target, image=f"samples/{index}.png",
            )
        )  # fmt: skip
    return tuple(flips)


def study(folder: Path) -> StudyResult:
    """Build a plausible result with hostile names; images go to `folder`."""
    names = ("/backbone/stage2/blocks.3/act/Mul_output_0", f"t {IMG}", "a|b `c` $x$ \x01", "conv2d_41.w_0_" + "x" * 120,
             "/neck/Add_3_output_0", "softmax")  # fmt: skip
    return StudyResult(
        name="ppocr-latin-int8", description=f"Does INT8 keep the reader usable on faxes? {IMG} " + HOSTILE[1],
        created="2025-11-30T17:04:00Z", run="20251130T170400-1f3a9c", command="calib run experiments/ppocr.toml\n# ```",
        model=ModelInfo(
            source="package:rapidocr-onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx", sha256="ab" * 32,
            size_bytes=10_857_958, opset=11, normalized_opset=17, inputs={"x": "float32[N, 3, 48, W]"},
            outputs={"softmax_11.tmp_0": "float32[N, T, 6625]"}, parameters=2_690_000,
            layers={"Conv": 38, "MatMul": 13}, normalization=("Moved 214 Constant nodes to initializers.", IMG),
            normalization_max_error=1.2e-6,
        ),
        recipe="datasets/latin-lines.toml",
        calibration=SetInfo(128, "cd" * 32, {"flatbed": 64, "fax": 20, "phone": 44}, 31),
        evaluation=SetInfo(364, "ef" * 32, DEVICES, 88),
        budget_metric="cer", higher_is_better={"cer": False, "exact_match": True}, max_drop=0.005,
        runtime="ONNX Runtime 1.23, Q/DQ as written",
        candidates=tuple(_candidate(row) for row in CANDIDATES),
        tensors=tuple(_tensor(i, name) for i, name in enumerate(names)), flips=_flips(folder),
        precision=(
            LayerPrecision("p2o.Conv.0", "Conv", "int8", "int8", ""), LayerPrecision(IMG, "MatMul", "fp16", "fp16", HOSTILE[1])),
        quality=quality_case.quality(),
        built=Built("TensorRT-RTX 1.7.1", 2.5, 109, 86, 1, 1),
        verdict=Verdict(True, "mse", "INT8 (mse) keeps CER within 0.005 of FP32", (
            "The whole 95 % interval of the difference, +0.0002 to +0.0046, is below the budget of 0.0050.",
            "fax alone is not shown to be within the budget.", IMG)),
        include_samples=True, seconds={"data": 3.1, "observe": 11.8, "calibrate": 1.2, "evaluate": 96.4},
        environment={"python": "3.11.2", "onnxruntime": "1.23.0", "cpu": IMG},
        notes=("Used 128 of 128 calibration samples.", "| --- |", HOSTILE[1]), tracking_uri="http://mlflow.local:5000",
    )  # fmt: skip


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
    table = next(i for i, line in enumerate(source.splitlines()) if line.startswith("| sample"))
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
    result = study(tmp_path)
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
    result = study(run)
    (tmp_path / "secret.png").write_bytes((run / "samples/0.png").read_bytes())
    (run / "link.png").symlink_to(tmp_path / "secret.png")
    flips = (dataclasses.replace(result.flips[0], image=path),)
    with pytest.raises(DataError, match="flip image"):
        render(dataclasses.replace(result, flips=flips), tmp_path / "report", images=run)
    assert not (tmp_path / "report/index.html").exists()


def test_image_must_be_a_png_that_exists(tmp_path: Path) -> None:
    result = study(tmp_path)
    (tmp_path / "page.png").write_text("<svg/>")
    for path, message in (("page.png", "must be a PNG"), ("gone.png", "Cannot read")):
        flips = (dataclasses.replace(result.flips[0], image=path),)
        with pytest.raises(DataError, match=message):
            render(dataclasses.replace(result, flips=flips), tmp_path / "report", images=tmp_path)


def test_renders_without_flips_tensors_slices_and_intervals(tmp_path: Path) -> None:
    result = study(tmp_path)
    candidates = tuple(dataclasses.replace(c, slices={}, interval=None) for c in result.candidates)
    bare = dataclasses.replace(
        result, flips=(), tensors=(), candidates=candidates, notes=(), description="", tracking_uri="",
        calibration=SetInfo(0, "", {}, 0), seconds={}, environment={},
    )  # fmt: skip
    render(bare, tmp_path / "report", images=tmp_path)
    for name in ("index.html", "report.md"):
        content = (tmp_path / "report" / name).read_text()
        for sentence in ("No flips were recorded", "No tensor ranges", "defines no slices", "chance is not ruled out"):
            assert sentence in content, (name, sentence)


def test_an_interval_across_the_budget_is_not_shown_rather_than_passed(tmp_path: Path) -> None:
    result = study(tmp_path)
    mse = dataclasses.replace(result.candidates[4], interval=Interval(-0.001, 0.007, 0.95))
    verdict = dataclasses.replace(result.verdict, passed=False, headline="Not shown")
    crossed = dataclasses.replace(result, candidates=(*result.candidates[:4], mse, *result.candidates[5:]))
    render(dataclasses.replace(crossed, verdict=verdict), tmp_path / "a", images=tmp_path)
    assert '<span class="pill">Not shown</span>' in (tmp_path / "a/index.html").read_text()
    render(crossed, tmp_path / "b", images=tmp_path)
    assert "its interval is not wholly within the budget" in (tmp_path / "b/index.html").read_text()


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
    result = dataclasses.replace(
        study(tmp_path), tensors=(), flips=(), quality=quality_case.good(), calibration=SetInfo(128, "cd" * 32, {}, 31)
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
        for item in root.iter("text"):
            assert "nan" not in (item.text or "")
    assert len(shown.drawings) == 6


def test_large_images_are_left_out_of_the_page_and_said_so(tmp_path: Path) -> None:
    result = study(tmp_path)
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
    assert judge((low + high) / 2, interval, max_drop=0.005, higher_is_better=up) == expected


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
