"""The gate: it passes what the verdict deploys, says why else, and what it writes is what GitHub and CI read."""

from __future__ import annotations

import dataclasses
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from junitparser import JUnitXml
from markdown_it import MarkdownIt
from rich.console import Console

from calib.cli_evidence import print_gate
from calib.errors import ConfigError
from calib.evidence.result import Evidence, SliceEvidence
from calib.gating import Latencies, gate, junit, markdown
from calib.report.text import plain
from calib.study.codec import save
from calib.study.result import StudyResult
from calib.study.verdict import decide
from tests import evidence_case
from tests.conftest import assert_refused, run_calib, write_study

HOSTILE = (
    "a|b \\| `c` *d* [x](http://e.example) <script>alert(1)</script> @me #1 $x$",
    "nul\x00\u202e\ud800\ufffe\nline",
)


def judged(folder: Path, evidence: Evidence, name: str = "small") -> StudyResult:
    """A result whose verdict is the one of its evidence."""
    result = evidence_case.study(folder)
    verdict = decide(result.candidates, evidence, kept_in_float=0)
    return dataclasses.replace(result, name=name, evidence=evidence, verdict=verdict)


def without(evidence: Evidence, *verdicts: str) -> Evidence:
    return dataclasses.replace(evidence, slices=tuple(s for s in evidence.slices if s.verdict not in verdicts))


def good(folder: Path) -> StudyResult:
    return judged(folder, without(evidence_case.evidence(), "worse"))


EVIDENCE: dict[str, Callable[[], Evidence]] = {
    "within": lambda: without(evidence_case.evidence(), "worse"),
    "worse on slices": evidence_case.evidence,
    "beyond": lambda: without(evidence_case.evidence(shown="beyond"), "worse"),
    "open": lambda: without(evidence_case.evidence(shown="open"), "worse"),
    "no interval": lambda: dataclasses.replace(
        without(evidence_case.evidence(), "worse"),
        bound=None, power=None, overall=evidence_case.no_interval("no sample scores otherwise"),
    ),
    "no slices": lambda: dataclasses.replace(evidence_case.evidence(), slices=()),
}  # fmt: skip


@pytest.mark.parametrize("latencies", [None, Latencies(1.2, 1.7), Latencies(1.9, 1.7), Latencies(1.7, 1.7)])
@pytest.mark.parametrize("case", EVIDENCE)
def test_it_passes_where_the_verdict_deploys_and_else_a_check_says_what_failed(
    case: str, latencies: Latencies | None, tmp_path: Path
) -> None:
    result = judged(tmp_path, EVIDENCE[case]())
    found = gate(result, latencies)
    slow = latencies is not None and latencies.int8_ms >= latencies.fp16_ms
    assert found.passed == (case in ("within", "no slices") and not slow)
    failed = [check.name for check in found.checks if check.status == "failed"]
    assert bool(failed) is not found.passed
    assert ("INT8 is faster than FP16" in failed) is slow
    assert len(found.rows) == 1 + len(result.evidence.slices)
    if slow and case == "within":
        assert found.decision == "keep FP16" and "gains no latency" in found.headline
        assert "1.9 ms" in found.reasons[0] or "1.7 ms" in found.reasons[0]


def test_each_check_has_its_numbers_and_its_reason(tmp_path: Path) -> None:
    checks = {check.name: check for check in gate(judged(tmp_path, evidence_case.evidence())).checks}
    overall = checks["CER within 0.005 of FP32, all 364 samples"]
    assert overall.status == "passed" and "0.0049" in overall.message and "99 %" in overall.message
    fax = checks["device = fax"]
    assert fax.status == "failed"
    assert "drop +0.0210 (+0.0070 to +0.0392 at 95 %) on 64 samples, adjusted p 0.006" in fax.message
    assert checks["device = thermal"].status == "skipped"
    assert "too few" in checks["device = thermal"].message
    assert checks["device = phone"].status == "passed" and "not shown" in checks["device = phone"].message
    assert checks["region x: edges < 0.03"].status == "failed"
    without_interval = gate(judged(tmp_path, EVIDENCE["no interval"]())).checks[0]
    assert without_interval.status == "failed" and "no sample scores otherwise" in without_interval.message


def test_a_drop_is_above_zero_where_it_is_worse_whatever_the_direction(tmp_path: Path) -> None:
    low = evidence_case.evidence()
    first = low.slices[0].difference
    assert first.interval is not None
    turned = dataclasses.replace(
        first, delta=-first.delta,
        interval=dataclasses.replace(first.interval, low=-first.interval.high, high=-first.interval.low),
    )  # fmt: skip
    high = dataclasses.replace(
        low, higher_is_better=True, slices=(dataclasses.replace(low.slices[0], difference=turned), *low.slices[1:])
    )
    one, two = (gate(judged(tmp_path, evidence)).rows[1] for evidence in (low, high))
    assert one == two


@pytest.mark.parametrize(("int8", "fp16"), [(-1, 2), (0, 2), (1, float("nan")), (float("inf"), 1)])
def test_latencies_are_times(int8: float, fp16: float) -> None:
    with pytest.raises(ConfigError, match="above 0"):
        Latencies(int8, fp16)


def hostile(folder: Path) -> StudyResult:
    evidence = evidence_case.evidence()
    slices = tuple(dataclasses.replace(piece, name=f"{HOSTILE[i % 2]} {i}") for i, piece in enumerate(evidence.slices))
    return judged(folder, dataclasses.replace(evidence, slices=slices), name="".join(HOSTILE))


def test_a_junit_parser_reads_the_checks_and_no_name_breaks_it(tmp_path: Path) -> None:
    for result in (good(tmp_path), hostile(tmp_path)):
        found = gate(result, Latencies(1.9, 1.7))
        document = junit(found, result)
        (suite,) = JUnitXml.fromstring(document.encode())
        assert suite.name == plain(f"calib gate: {result.name}")
        assert (suite.tests, suite.errors) == (len(found.checks), 0)
        cases = list(suite)
        assert [case.name for case in cases] == [plain(check.name) for check in found.checks]
        assert {case.classname for case in cases} == {plain(f"calib.{result.name}")}
        kinds = {"failed": "Failure", "skipped": "Skipped"}
        for case, check in zip(cases, found.checks, strict=True):
            assert [type(one).__name__ for one in case.result] == (
                [kinds[check.status]] if check.status in kinds else []
            )
            assert all(one.message == plain(check.message) for one in case.result)
        assert suite.failures == sum(check.status == "failed" for check in found.checks) > 0
        assert suite.skipped == sum(check.status == "skipped" for check in found.checks) > 0
        known = {one.name: one.value for one in suite.properties()}
        assert known["run"] == result.run and known["model.sha256"] == result.model.sha256
        assert known["evaluation.sha256"] == result.evaluation.sha256 and "calib.version" in known
        root = ElementTree.fromstring(document)
        assert (root.tag, root.attrib) == (
            "testsuites",
            {},
        )  # what Windy Road's schema asks for, and the next lines too
        assert set(root[0].attrib) == {"name", "tests", "failures", "errors", "skipped", "time", "timestamp", "hostname",
                                       "package", "id"}  # fmt: skip
        assert [child.tag for child in root[0]] == [
            "properties",
            *["testcase"] * len(cases),
            "system-out",
            "system-err",
        ]
        assert root[0].attrib["timestamp"] == "2025-11-30T17:04:00"
        said = root.findtext("testsuite/system-out") or ""
        assert said.splitlines() == [plain(line) for line in (f"{found.decision}: {found.headline}", *found.reasons)]


def tokens(source: str) -> list[Any]:
    return [
        one
        for token in MarkdownIt("gfm-like", {"linkify": False}).parse(source)
        for one in (token, *(token.children or []))
    ]


def test_markdown_is_a_table_and_names_stay_text(tmp_path: Path) -> None:
    result = hostile(tmp_path)
    found = gate(result)
    source = markdown(found, result)
    every = tokens(source)
    assert not {token.type for token in every} & {"link_open", "image", "code_inline", "em_open", "fence", "code_block"}
    assert {token.content for token in every if token.type.startswith("html")} <= {"<sub>", "</sub>"}
    rows = [i for i, token in enumerate(every) if token.type == "tr_open"]
    assert len(rows) == 1 + len(found.rows)
    cells = [token.content for token in every if token.type == "inline" and token.level == 4]
    assert len(cells) == 6 * len(rows)
    texts = [
        "".join(t.content for t in token.children or [])
        for token in every
        if token.type == "inline" and token.level == 4
    ]
    assert set(texts[7::6]) == {plain(row.name) for row in found.rows}
    assert "\x00" not in source and "\u202e" not in source and "\ud800" not in source
    assert source.startswith(f"### ❌ INT8 gate: {found.decision}\n")
    assert result.model.sha256[:12] in source and result.model.sha256 not in source


def test_failing_slices_come_first_and_many_others_fold(tmp_path: Path) -> None:
    evidence = evidence_case.evidence()
    fine = next(piece for piece in evidence.slices if piece.verdict == "within")
    many: list[SliceEvidence] = [dataclasses.replace(fine, name=f"site = {i}") for i in range(40)]
    worse = next(piece for piece in evidence.slices if piece.verdict == "worse")
    result = judged(tmp_path, dataclasses.replace(evidence, slices=(*many, worse)))
    source = markdown(gate(result), result)
    head, _, folded = source.partition("<details><summary>30 more slices</summary>\n\n")
    assert head.index(worse.name + " |") < head.index("site = 0 |")
    assert folded.count("| ✅ | site") == 30 and "\n\n</details>\n" in folded
    assert sum(token.type == "table_open" for token in tokens(source)) == 2


def test_the_terminal_takes_nothing_for_markup(tmp_path: Path) -> None:
    result = hostile(tmp_path)
    evidence = result.evidence
    slices = (dataclasses.replace(evidence.slices[0], name="[red]a[/red] [/] \x1b[31m"), *evidence.slices[1:])
    result = dataclasses.replace(result, evidence=dataclasses.replace(evidence, slices=slices))
    console = Console(file=io.StringIO(), width=120)
    print_gate(gate(result), result, console)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "[red]a[/red] [/] \ufffd[31m" in shown and "\x1b" not in shown and "\x00" not in shown


class TestCommand:
    @pytest.fixture
    def run(self, tmp_path: Path) -> Path:
        folder = tmp_path / "runs/small/20260101T000000Z-aaaaaaaaaaaa"
        folder.mkdir(parents=True)
        save(good(tmp_path), folder / "study.json")
        return folder

    def test_exit_is_0_or_3(self, run: Path, tmp_path: Path, calib) -> None:
        answer = calib("gate", run)
        assert answer.status == 0 and "deploy: INT8 (mse) keeps CER within 0.005 of FP32" in answer.out
        assert calib("gate", run, "--int8-ms", 1.2, "--fp16-ms", 1.7).status == 0
        answer = calib("gate", run, "--int8-ms", 1.9, "--fp16-ms", 1.7)
        assert answer.status == 3 and "keep FP16: INT8 (mse) gains no latency" in answer.out
        save(judged(tmp_path, evidence_case.evidence()), run / "study.json")
        answer = calib("gate", run)
        assert answer.status == 3 and "keep FP16" in answer.out

    def test_files_and_json(self, run: Path, tmp_path: Path, calib) -> None:
        answer = calib("gate", run, "--json", "--markdown", tmp_path / "a/s.md", "--junit", tmp_path / "b/j.xml")
        document = json.loads(answer.out)
        assert (
            document["study"] == "small" and document["passed"] is True and document["checks"][0]["status"] == "passed"
        )
        assert (tmp_path / "a/s.md").read_text(encoding="utf-8").startswith("### ✅ INT8 gate: deploy\n")
        assert JUnitXml.fromfile(str(tmp_path / "b/j.xml")).tests == len(document["checks"])

    def test_a_studys_folder_means_its_newest_run(self, run: Path, tmp_path: Path, calib) -> None:
        later = run.with_name("20260102T000000Z-bbbbbbbbbbbb")
        shutil.copytree(run, later)
        result = dataclasses.replace(judged(tmp_path, evidence_case.evidence()), run=later.name)
        save(result, later / "study.json")
        (run.parent / "notes").mkdir()
        answer = calib("gate", run.parent)
        assert answer.status == 3 and f"run {later.name}" in answer.out
        (later / "study.json").unlink()
        assert_refused(calib("gate", run.parent), str(later), "not finished")
        assert calib("gate", run).status == 0

    def test_what_is_wrong_is_said(self, run: Path, tmp_path: Path, calib) -> None:
        assert_refused(calib("gate", tmp_path), str(tmp_path), "study.json")
        assert_refused(calib("gate", tmp_path / "none"), "none is no run")
        assert_refused(calib("gate", run / "study.json"), "is no run")
        assert_refused(calib("gate", run, "--int8-ms", 1), "--fp16-ms")
        assert_refused(calib("gate", run, "--fp16-ms", 1), "--int8-ms")
        assert_refused(calib("gate", run, "--int8-ms", -1, "--fp16-ms", 1), "int8_ms", "-1")
        assert_refused(calib("gate", run, "--int8-ms", 1, "--fp16-ms", "nan"), "fp16_ms")
        (run / "study.json").write_text("{}")
        assert_refused(calib("gate", run), str(run / "study.json"))


def test_a_real_run(tmp_path: Path, calib) -> None:
    study = write_study(
        tmp_path / "study", ('["max", "mse", "entropy"]', '["max"]'), ("noise_control", "# noise_control")
    )
    answer = run_calib("run", study, "--runs", tmp_path / "runs", "--no-track")
    assert answer.status == 0, answer.err
    answer = calib("gate", tmp_path / "runs/small", "--junit", tmp_path / "junit.xml")
    assert answer.status == 3 and "not enough data" in answer.out
    (suite,) = JUnitXml.fromfile(str(tmp_path / "junit.xml"))
    assert {one.name: one.value for one in suite.properties()}["calib.version"] == "0.1.0"
