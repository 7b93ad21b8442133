"""The gate: a finished study's verdict as checks, for a pull request (Markdown) and for CI (JUnit XML)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal
from xml.etree import ElementTree

from calib.errors import ConfigError
from calib.evidence.result import Difference, Evidence, SliceEvidence
from calib.report import evidence_words as words
from calib.report import text
from calib.report.quality_words import chance
from calib.report.text import markdown as md
from calib.study.result import StudyResult
from calib.study.verdict import with_latencies

Status = Literal["passed", "failed", "skipped"]

_LISTED = 10  # slices in the table of a pull request, beside those that fail; the others fold
_MARKS: dict[Status, str] = {"passed": "✅", "failed": "❌", "skipped": "⚪"}
_SLICES: dict[str, tuple[Status, str]] = {
    "worse": ("failed", "worse than FP32, also after correction for all slices, and by more than the budget"),
    "slightly worse": (
        "passed",
        "worse than FP32, also after correction for all slices, but by no more than the budget",
    ),
    "within": ("passed", "within the budget"),
    "open": ("passed", "not shown to be worse, nor to be within the budget"),
    "too few": ("skipped", "too few samples for a verdict"),
}


@dataclass(frozen=True, slots=True)
class Latencies:
    """Latency of both engines in milliseconds, measured alike by the user on the GPU of the deployment."""

    int8_ms: float
    fp16_ms: float

    def __post_init__(self) -> None:
        """Check that both are times."""
        for name, value in (("int8_ms", self.int8_ms), ("fp16_ms", self.fp16_ms)):
            if not 0 < value < math.inf:
                raise ConfigError(f"latency {name} must be a number of milliseconds above 0, not {value:g}")


@dataclass(frozen=True, slots=True)
class Check:
    """One condition of the gate."""

    name: str
    status: Status
    message: str  # the numbers, and why it failed or was skipped


@dataclass(frozen=True, slots=True)
class Row:
    """What one check of scores rests on, formatted: a line of the table."""

    name: str
    samples: str
    drop: str  # how much worse than FP32; above 0 is worse, whatever the score's direction
    interval: str  # of the drop, with its level
    verdict: str
    status: Status


@dataclass(frozen=True, slots=True)
class Gate:
    """The answer of the gate.

    Attributes:
        passed: whether the decision is to deploy INT8.
        decision: the verdict's, after latencies.
        headline: it in a sentence.
        reasons: a sentence each.
        checks: the budget first, then each slice, then the latency where it is known. Some check failed where the gate did.
        rows: the checks of scores as a table.
    """

    passed: bool
    decision: str
    headline: str
    reasons: tuple[str, ...]
    checks: tuple[Check, ...]
    rows: tuple[Row, ...]


def gate(result: StudyResult, latencies: Latencies | None = None) -> Gate:
    """Return whether a study's verdict is to deploy INT8, with the checks that it rests on.

    Args:
        result: of a finished study.
        latencies: once they are known; INT8 that is no faster than FP16 does not pass.
    """
    verdict, evidence = result.verdict, result.evidence
    checks = [_overall(evidence, result.max_drop), *(_slice(evidence, piece) for piece in evidence.slices)]
    rows = [_overall_row(evidence), *(_slice_row(evidence, piece) for piece in evidence.slices)]
    if latencies is not None:
        verdict = with_latencies(verdict, latencies.int8_ms, latencies.fp16_ms)
        faster = latencies.int8_ms < latencies.fp16_ms
        message = f"INT8 takes {latencies.int8_ms:g} ms, FP16 {latencies.fp16_ms:g} ms"
        checks.append(Check("INT8 is faster than FP16", "passed" if faster else "failed", message))
    return Gate(
        verdict.passed, verdict.decision, verdict.headline, verdict.reasons, tuple(checks), tuple(rows)
    )  # fmt: skip


def _overall(evidence: Evidence, margin: float) -> Check:
    name = f"{text.title(evidence.metric)} within {margin:g} of FP32, all {text.plural(evidence.overall.samples, 'sample')}"
    if evidence.bound is not None and evidence.bound.shown == "within":
        return Check(name, "passed", words.bound(evidence))
    return Check(name, "failed", " ".join(filter(None, (words.bound(evidence), words.needed(evidence)))))


def _overall_row(evidence: Evidence) -> Row:
    bound, overall = evidence.bound, evidence.overall
    name, samples = "all samples", f"{overall.samples:,}"
    if bound is None:
        drop = words.harm(evidence, overall.delta)
        return Row(name, samples, text.signed(drop), text.DASH, text.STATUS_WORDS["unknown"], "failed")
    interval = _interval(bound.least, bound.most, bound.level)
    verdict = text.STATUS_WORDS[words.bound_status(bound)]
    return Row(name, samples, text.signed(bound.drop), interval, verdict, _passed(bound.shown == "within"))


def _passed(is_so: bool) -> Status:
    return "passed" if is_so else "failed"


def _slice(evidence: Evidence, piece: SliceEvidence) -> Check:
    status, meaning = _SLICES[piece.verdict]
    found = piece.difference
    drop = f"drop {text.signed(words.harm(evidence, found.delta))}"
    interval = f"no interval: {found.why}" if found.interval is None else _ends(evidence, found)
    corrected = "" if piece.adjusted is None else f", adjusted p {chance(piece.adjusted)}"
    message = f"{meaning}: {drop} ({interval}) on {text.plural(found.samples, 'sample')}{corrected}"
    return Check(_name(piece), status, message)


def _slice_row(evidence: Evidence, piece: SliceEvidence) -> Row:
    found, status = piece.difference, words.slice_status(piece)
    interval = text.DASH if found.interval is None else _ends(evidence, found)
    drop = text.signed(words.harm(evidence, found.delta))
    verdict = text.STATUS_WORDS[status]
    return Row(_name(piece), f"{found.samples:,}", drop, interval, verdict, _SLICES[piece.verdict][0])


def _name(piece: SliceEvidence) -> str:
    """Name a slice so that no two kinds of slices can have one name."""
    return piece.name if piece.kind in ("column", "pair") else f"{piece.kind} {piece.name}"


def _ends(evidence: Evidence, found: Difference) -> str:
    assert found.interval is not None
    ends = sorted(words.harm(evidence, end) for end in (found.interval.low, found.interval.high))
    return _interval(ends[0], ends[1], found.interval.level)


def _interval(low: float, high: float, level: float) -> str:
    return f"{text.signed(low)} to {text.signed(high)} at {words.level(level)}"


def markdown(found: Gate, result: StudyResult) -> str:
    """Return a summary for a pull request, in GitHub's Markdown; every name of the data is escaped."""
    failing = [row for row in found.rows[1:] if row.status == "failed"]
    others = [row for row in found.rows[1:] if row.status != "failed"]
    listed, folded = [found.rows[0], *failing, *others[:_LISTED]], others[_LISTED:]
    lines = [f"### {_MARKS[_passed(found.passed)]} INT8 gate: {found.decision}", "", f"**{md(found.headline)}**", ""]
    lines += [f"- {md(reason)}" for reason in found.reasons]
    lines += ["", *_table(listed)]
    if folded:
        lines += ["", f"<details><summary>{text.plural(len(folded), 'more slice')}</summary>", "", *_table(folded)]
        lines += ["", "</details>"]
    lines += [
        "",
        f"Drop: how much worse than FP32 {md(text.title(result.budget_metric))} is, so that above 0 is worse; the budget "
        f"allows {result.max_drop:g}.",
        "",
        f"<sub>Study {md(result.name)}, run {md(result.run)}, model {md(result.model.sha256[:12])}, evaluation set "
        f"{md(result.evaluation.sha256[:12])} ({text.plural(result.evaluation.samples, 'sample')}), calibration set "
        f"{md(result.calibration.sha256[:12])} ({text.plural(result.calibration.samples, 'sample')})</sub>",
    ]
    return "\n".join(lines) + "\n"


def _table(rows: list[Row]) -> list[str]:
    lines = ["| | | samples | drop | interval of the drop | verdict |", "|:-:|:--|--:|--:|:--|:--|"]
    for row in rows:
        cells = (row.name, row.samples, row.drop, row.interval, row.verdict)
        lines.append(f"| {_MARKS[row.status]} | {' | '.join(md(cell) for cell in cells)} |")
    return lines


def junit(found: Gate, result: StudyResult) -> str:
    """Return the checks as JUnit XML, a test case each, with what identifies the run as properties.

    It is valid by the schemas of Apache Ant (Windy Road's) and of Jenkins' xUnit plugin.
    """
    counts = {status: sum(check.status == status for check in found.checks) for status in _MARKS}
    totals = {"tests": str(len(found.checks)), "failures": str(counts["failed"]), "errors": "0"}
    root = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(
        root,
        "testsuite",
        {
            "name": text.plain(f"calib gate: {result.name}"),
            **totals,
            "skipped": str(counts["skipped"]),
            "time": "0",
            "timestamp": text.plain(result.created[:19]),  # in UTC; the schema allows no zone
            "hostname": "localhost",
            "package": "calib",
            "id": "0",
        },
    )
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in _properties(found, result).items():
        ElementTree.SubElement(properties, "property", {"name": name, "value": text.plain(value)})
    for check in found.checks:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            {"classname": text.plain(f"calib.{result.name}"), "name": text.plain(check.name), "time": "0"},
        )
        message = {"message": text.plain(check.message)}
        if check.status == "failed":
            failure = ElementTree.SubElement(case, "failure", {**message, "type": "calib.gate"})
            failure.text = text.plain(check.message)
        elif check.status == "skipped":
            ElementTree.SubElement(case, "skipped", message)
    said = (f"{found.decision}: {found.headline}", *found.reasons)
    ElementTree.SubElement(suite, "system-out").text = "\n".join(map(text.plain, said))
    ElementTree.SubElement(suite, "system-err")
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _properties(found: Gate, result: StudyResult) -> dict[str, str]:
    return {
        "decision": found.decision,
        "run": result.run,
        "candidate": result.evidence.candidate,
        "model.sha256": result.model.sha256,
        "evaluation.sha256": result.evaluation.sha256,
        "calibration.sha256": result.calibration.sha256,
        "budget": f"{result.max_drop:g}",
        "calib.version": result.environment.get("calib", "unknown"),
    }
