"""What two runs say of themselves, side by side: model, data, options, versions, verdict; layers and scales."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from calib.aggregates import Floats
from calib.comparing.loading import Run
from calib.comparing.result import Change, LayerChange, Layers, ScaleChange, Scales
from calib.data.sets import SampleSet
from calib.scales import Scales as RunScales
from calib.study.result import StudyResult

LIMIT = 0.01
"""Change of a scale from which it counts, as a share."""


def changes(before: Run, after: Run) -> tuple[Change, ...]:
    """Return what both runs say of themselves, in the order in which one thing decides the next."""
    first, second = before.result, after.result
    rows = [Change(what, one, two) for (what, one), (_, two) in zip(_said(before), _said(after), strict=True)]
    versions = [
        Change(name, *(result.environment.get(name, "none") for result in (first, second)))
        for name in dict.fromkeys([*first.environment, *second.environment])
    ]
    return (*rows, *_sets(before, after), *versions, *_verdicts(first, second))


def _said(run: Run) -> Iterator[tuple[str, str]]:
    result, budget = run.result, f"{run.result.budget_metric} may drop by {run.result.max_drop:g}"
    yield "study", result.name
    yield "model file", result.model.source
    yield "model", f"sha256 {result.model.sha256[:12]}"
    yield "recipe", result.recipe
    yield "calibrators", ", ".join(one.name for one in result.candidates if one.kind == "candidate")
    yield "best candidate", run.best.name
    yield "layers in INT8", f"{len(run.decisions.int8)} of {len(run.decisions.int8) + len(run.decisions.left)}"
    yield "layers kept in float by the plan", str(run.decisions.kept_by_plan)
    yield "what is not INT8", f"{run.decisions.rest}, {len(run.decisions.kept)} nodes of it in FP32"
    yield "size of the best candidate", f"{run.best.size_bytes:,} bytes"
    yield "metric", f"{result.budget_metric}, {'higher' if _up(result) else 'lower'} is better"
    yield "budget", budget
    yield "runtime", result.runtime
    yield "TensorRT", result.built.builder if result.built else "not built"


def _up(result: StudyResult) -> bool:
    return result.evidence.higher_is_better


def _sets(before: Run, after: Run) -> Iterator[Change]:
    for name, one, two in (
        ("calibration set", before.calibration, after.calibration),
        ("evaluation set", before.evaluation, after.evaluation),
    ):
        shared = (Counter(_digests(one)) & Counter(_digests(two))).total()
        yield Change(name, *(_set(samples, shared) for samples in (one, two)))
    prepared = before.calibration.preparation == after.calibration.preparation
    yield Change("preparation of inputs", "as before", "as before" if prepared else "another")


def _set(samples: SampleSet, shared: int) -> str:
    own = len(samples) - shared
    return f"{len(samples):,} samples, sha256 {samples.sha256[:12]}" + (f", {own:,} in this run alone" if own else "")


def _digests(samples: SampleSet) -> list[str]:
    return [entry.sha256 for entry in samples.entries]


def _verdicts(before: StudyResult, after: StudyResult) -> Iterator[Change]:
    yield Change("verdict", *(f"{one.verdict.decision}: {one.verdict.headline}" for one in (before, after)))


def layers(before: Run, after: Run) -> Layers:
    """Compare the precision of the best candidates' layers."""
    first, second = (_precision(run) for run in (before, after))
    names = dict.fromkeys([*first, *second])
    rows = [LayerChange(name, first.get(name, ""), second.get(name, "")) for name in names]
    return Layers(len(names), tuple(row for row in rows if row.before != row.after))


def _precision(run: Run) -> dict[str, str]:
    """Return what was decided for each layer, of quantization.json, in the graph's order as far as study.json knows it."""
    decided = run.decisions
    found = dict.fromkeys(decided.int8, "int8")
    for name, reason in decided.left.items():
        found[name] = "fp32" if decided.rest == "fp32" or name in decided.kept or reason.endswith(" fp32") else "fp16"
    ordered = [row.name for row in run.result.precision if row.name in found]
    return {name: found[name] for name in dict.fromkeys([*ordered, *found])}


def scales(before: Run, after: Run) -> Scales:
    """Compare the scales of one candidate that both runs have, the later best if possible, else of each run's best."""
    names = [{one.name for one in run.result.candidates if one.kind == "candidate"} for run in (before, after)]
    common = [name for name in (after.best.name, before.best.name) if all(name in known for known in names)]
    first, second = (common[0], common[0]) if common else (before.best.name, after.best.name)
    one, two = (_values(run.scales(name)) for run, name in ((before, first), (after, second)))
    both = [name for name in one if name in two and one[name].shape == two[name].shape]
    rows = [_most(name, one[name].reshape(-1), two[name].reshape(-1)) for name in both]
    moved = [row for row in rows if max(row.ratio, 1 / row.ratio) > 1 + LIMIT]
    moved.sort(key=lambda row: -abs(float(np.log(row.ratio))))
    return Scales(
        first,
        second,
        len(both),
        LIMIT,
        tuple(moved),
        tuple(name for name in one if name not in both),
        tuple(name for name in two if name not in both),
    )


def _values(found: RunScales) -> dict[str, Floats]:
    scalars = {name: np.asarray(scale, np.float64) for name, scale in found.activations.items()}
    return scalars | {name: scale.values.astype(np.float64) for name, scale in found.weights.items()}


def _most(
    name: str,
    one: Floats,
    two: Floats,
) -> ScaleChange:
    channel = int(np.argmax(np.abs(np.log(two / one))))
    return ScaleChange(name, float(one[channel]), float(two[channel]))
