"""What the report shows of the evidence: the numbers that decide, what more samples would show, right and wrong."""

from __future__ import annotations

from dataclasses import dataclass

from calib.evidence.result import Decisions, Evidence
from calib.report import evidence_words as words
from calib.report import text
from calib.report.evidence_figures import sample_size
from calib.report.quality_words import Tone, chance
from calib.report.svg import Captioned
from calib.study.result import Candidate, StudyResult


@dataclass(frozen=True, slots=True)
class Fact:
    """One number of the verdict."""

    name: str
    value: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CountsRow:
    """A line of the table of right and wrong."""

    of: str
    right: str
    wrong: str


@dataclass(frozen=True, slots=True)
class EvidenceView:
    """Everything that the verdict and the section on the evidence show."""

    tone: Tone  # of the decision
    facts: tuple[Fact, ...]
    sentences: tuple[str, ...]
    decisions: str  # about right and wrong
    counts: tuple[CountsRow, ...]  # empty where the metric knows no right and wrong
    figure: Captioned | None
    notes: tuple[str, ...]


def evidence_view(result: StudyResult, baseline: Candidate, best: Candidate) -> EvidenceView:
    """Format what is known of the best candidate."""
    found = result.evidence
    return EvidenceView(
        tone=words.DECISION_TONES[result.verdict.decision],
        facts=_facts(result, baseline, best),
        sentences=tuple(filter(None, (words.bound(found), words.needed(found)))),
        decisions=words.decisions(found),
        counts=_counts(found.decisions) if found.decisions else (),
        figure=_figure(result, best),
        notes=found.notes,
    )


def _counts(found: Decisions) -> tuple[CountsRow, ...]:
    return (
        CountsRow("right in FP32", f"{found.both_right:,}", f"{found.broken:,} broken"),
        CountsRow("wrong in FP32", f"{found.fixed:,} fixed", f"{found.both_wrong:,}"),
    )


def _facts(result: StudyResult, baseline: Candidate, best: Candidate) -> tuple[Fact, ...]:
    found, metric = result.evidence, result.budget_metric
    overall = found.overall
    return (
        Fact("Best candidate", best.name, (f"{best.int8_layers} of {best.total_layers} layers in INT8",)),
        Fact(
            f"{text.title(metric)}, {'higher' if found.higher_is_better else 'lower'} is better",
            text.number(best.metrics[metric]),
            (f"FP32 {text.number(baseline.metrics[metric])}",),
        ),
        Fact(
            "Difference to FP32",
            text.signed(overall.delta),
            (text.span(overall.interval), f"{words.level(overall.interval.level)} interval")
            if overall.interval
            else ("no interval:", overall.why),
        ),
        _decides(found),
        Fact("Budget", text.number(result.max_drop), (text.STATUS_WORDS[words.status(result, best)],)),
        _flips(found, best),
        *_power(found),
    )


def _decides(found: Evidence) -> Fact:
    bound = found.bound
    if bound is None:
        return Fact("Drop at most", text.DASH, ("no interval",))
    best_of = f", as the best of {bound.candidates} was chosen on these samples" if bound.candidates > 1 else ""
    if bound.shown == "beyond":
        return Fact("Drop at least", text.number(bound.least), (f"lower end at {words.level(bound.level)}{best_of}",))
    return Fact("Drop at most", text.number(bound.most), (f"upper end at {words.level(bound.level)}{best_of}",))


def _flips(found: Evidence, best: Candidate) -> Fact:
    agree = f"{text.percent(best.agreement)} of predictions equal"
    if found.decisions is None:
        return Fact("Broken / fixed", text.DASH, (words.NO_RIGHT, agree))
    p_value = f"McNemar's p {chance(found.decisions.p_value)}"
    return Fact("Broken / fixed", f"{found.decisions.broken:,} / {found.decisions.fixed:,}", (p_value, agree))


def _power(found: Evidence) -> tuple[Fact, ...]:
    power = found.power
    if power is None:
        return ()
    unit = words.unit(found)
    detectable = Fact(
        "Smallest drop it could show",
        text.number(power.detectable),
        (f"in {10 * power.power:g} of 10 studies of {text.plural(power.samples, unit)}",),
    )
    if power.needed_if_equal is None:
        return (detectable, Fact("Needed for the budget", text.DASH, ("no number of samples shows a budget of 0",)))
    seen = "no number" if power.needed_as_seen is None else f"{power.needed_as_seen:,}"
    needed = text.plural(power.needed_if_equal, unit)
    return (
        detectable,
        Fact("Needed for the budget", needed, ("if as good as FP32", f"{seen} if it loses what it seems to")),
    )


def _figure(result: StudyResult, best: Candidate) -> Captioned | None:
    found = result.evidence
    if found.bound is None or found.power is None or not found.power.detectable > 0:
        return None
    metric, unit = text.title(result.budget_metric), words.unit(found)
    often = f"{10 * found.power.power:g} of 10"
    return Captioned(
        sample_size(
            "sample-size",
            found.power,
            found.bound,
            words.status(result, best),
            metric=metric,
            unit=unit,
            description=text.plain(
                f"Drop of {metric} that would still be plausible, by number of {unit}s. {words.needed(found)}"
            ),
        ),
        f"What another number of {unit}s would show: of studies of that size {often} find the interval's upper end below the "
        "line. The budget is shown to be kept where a line is below it. The upright bar is this study's interval.",
    )
