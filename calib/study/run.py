"""Running a study: the only module that orders the stages and decides which files a run has.

Every stage writes its artefact whole or not at all; a rerun picks up at the first one that is missing.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import onnx_ir as ir

from calib import (
    cache,
    calibrators,
    environment,
    evaluate,
    judging,
    metrics,
    observe,
    pipeline,
    qdq,
    scales,
    statistics,
    verify,
)
from calib.calibrators import Calibrator
from calib.data import noise, sets
from calib.data.batch import Samples
from calib.data.sets import SampleSet
from calib.errors import ConfigError, MissingDependencyError, ModelError
from calib.evaluate import Evaluation
from calib.graph import load as graph_load
from calib.graph import normalize
from calib.graph import save as graph_save
from calib.metrics import Agreement, Metric
from calib.plan import Plan, Precision
from calib.progress import Progress
from calib.qdq import Decisions, Form
from calib.runtime import ort
from calib.scales import Origin, Scales
from calib.statistics import Observed
from calib.study import codec, folder, judged, precision, summary
from calib.study.config import Study
from calib.study.evaluated import Evaluated
from calib.study.folder import RunFolder
from calib.study.result import StudyResult

NOISE = "noise-"
HALF = "fp16"
_COMPARED_SAMPLES = 16


@dataclass(frozen=True, slots=True)
class Finished:
    """A study that ran to its end."""

    folder: Path
    result: StudyResult


def run(study: Study, root: Path, progress: Progress, *, tracking_uri: str = "", command: str = "") -> Finished:
    """Run a study, or what is missing of it, and write study.json.

    Args:
        study: the study file.
        root: folder of all runs.
        progress: told of every stage.
        tracking_uri: where the caller will track it; recorded in the result.
        command: that reproduces it; recorded in the result.

    Raises:
        CalibError: the study's model, data or metric is wrong; what was finished stays for the next run.
    """
    versions = environment.deciding_versions()
    place = folder.open_run(root, study.config.name, study.identity(versions))
    stages = _Stages(study, place, progress, versions)
    calibration, evaluation = stages.data()
    model, notes = stages.normalized(evaluation)
    metric = stages.metric(model.metadata_props)
    summary.check(study.config, metric.higher_is_better, evaluation)
    stages.scales(model, calibration, "", study.config.calibrate.calibrators)
    if study.config.quantize.rest == "fp16":
        stages.reference(model, calibration)
    if study.config.calibrate.noise_control:
        stages.scales(model, noise.like(calibration), NOISE, study.config.calibrate.noise_control)
    evaluated = stages.evaluations(model, evaluation)
    seen = statistics.load(place.path / "stats.npz", model_sha256=stages.model_sha256, data_sha256=calibration.sha256)
    result = summary.summarize(
        study,
        place,
        summary.Inputs(model, notes, calibration, evaluation, seen.tensors, isinstance(metric, Agreement), evaluated),
        tracking_uri=tracking_uri,
        command=command,
    )
    if study.config.data.judge:
        found = judged.judged(study, place, result, judged.Data(model, seen, calibration, evaluation), progress)
        result = replace(result, quality=found)
    if study.config.quantize.verify:
        result = stages.verified(result)
    result = replace(result, seconds=place.seconds)
    codec.save(result, place.path / "study.json")
    return Finished(place.path, result)


class _Stages:
    """The stages of one run; each returns its artefact, made now or before."""

    def __init__(self, study: Study, place: RunFolder, progress: Progress, versions: Mapping[str, str]) -> None:
        self._study = study
        self._place = place
        self._progress = progress
        self._versions = versions
        self._batch = study.config.calibrate.batch_size
        self.model_sha256 = graph_load.sha256(study.model)

    def data(self) -> tuple[SampleSet, SampleSet]:
        """Build the calibration and the evaluation set."""
        paths = [self._place.path / part for part in ("calibration", "evaluation")]
        if not all((path / "manifest.json").exists() for path in paths):
            with self._place.timed("data"):
                judging.build(self._study.recipe, self._place.path, self._progress, model=self._study.model)
        return sets.read(paths[0]), sets.read(paths[1])

    def normalized(self, samples: SampleSet) -> tuple[ir.Model, summary.Normalization]:
        """Normalize the model and compare its outputs before and after on some samples."""
        path = self._place.candidate("fp32") / "model.onnx"
        notes = self._place.path / "normalization.json"
        if not (path.exists() and notes.exists()):
            with self._stage("normalize", "Normalizing the model", 1) as advance:
                model = graph_load.load(self._study.model)
                result = normalize.normalize(model)
                path.parent.mkdir(parents=True, exist_ok=True)
                graph_save.save(result.model, path)
                normalize.name_nodes(model)  # ONNX Runtime loads no two nodes of one name
                with ort.in_memory(model) as before, ort.OrtRunner(path) as after:
                    error = ort.compare(before, after, samples, limit=_COMPARED_SAMPLES)
                summary.Normalization(result.steps, error).save(notes)
                advance(1)
        return graph_load.load(path), summary.Normalization.load(notes)

    def metric(self, model_metadata: Mapping[str, str]) -> Metric | Agreement:
        """Make the study's metric."""
        declared = self._study.config.metric
        return metrics.make(declared.name, declared.options, model_metadata, self._study.path.parent)

    def scales(self, model: ir.Model, samples: Samples, prefix: str, names: tuple[str, ...]) -> None:
        """Observe a set, as often as the calibrators need, and write each one's scales, cache and model."""
        chosen = [calibrators.parse(name, self._study.path.parent) for name in names]
        taken = Counter(["fp32", HALF, *(calibrator.name for calibrator in chosen)])
        for name, count in taken.items():
            if count > 1:
                raise ConfigError(
                    f"two models of the study would be called '{name}': give your calibrator another name"
                )
        statistics_of = self._observe(model, samples, prefix, second_pass=any(c.needs_linear for c in chosen))
        for calibrator in chosen:
            target = self._place.candidate(prefix + calibrator.name)
            if not (target / "model.int8.onnx").exists():
                with self._stage(f"calibrate {target.name}", f"Calibrating: {target.name}", 1) as advance:
                    self._candidate(model, statistics_of, calibrator, samples, target)
                    advance(1)

    def _observe(self, model: ir.Model, samples: Samples, prefix: str, *, second_pass: bool) -> Observed:
        path = self._place.path / f"{prefix}stats.npz"
        bound = {"model_sha256": self.model_sha256, "data_sha256": samples.sha256}
        tensors = qdq.quantizable(model)
        declared = self._study.config
        halves = (declared.quantize.rest, declared.plan.default, *declared.plan.layers.values())
        ranged = qdq.unranged(model) if "fp16" in halves else None
        kind = "noise" if prefix else "calibration data"
        if not path.exists():
            with self._stage(
                f"{prefix}observe", f"Observing {len(tensors)} tensors on {kind}", len(samples)
            ) as advance:
                seen = observe.observe(
                    model, samples, tensors, ranged, batch_size=self._batch, shards=not prefix, progress=advance
                )
                statistics.save(seen, path, **bound)
        result = statistics.load(path, **bound)
        if second_pass and any(item.linear is None for item in result.tensors.values()):
            with self._stage(f"{prefix}observe again", f"Second pass on {kind}, for entropy", len(samples)) as advance:
                result = observe.observe_linear(model, samples, result, batch_size=self._batch, progress=advance)
                statistics.save(result, path, **bound)
        return result

    def _candidate(
        self, model: ir.Model, seen: Observed, calibrator: Calibrator, samples: Samples, target: Path
    ) -> None:
        plan, form = self._study.config.plan, self._study.config.quantize
        origin = pipeline.origin_of(calibrator, self.model_sha256, samples)
        found = pipeline.scales_from(model, plan, seen, calibrator, origin)
        scales.save(found, target / "scales.json")
        cache.write(found, target / "calibration.cache")
        quantized = qdq.quantize(model, plan, found, Form(form.rest, form.weights))
        Decisions.of(quantized).save(target / "quantization.json")
        graph_save.save(quantized.model, target / "model.int8.onnx")

    def reference(self, model: ir.Model, samples: Samples) -> None:
        """Write the model with no layer in INT8: what is kept where INT8 is not good enough."""
        path = self._place.candidate(HALF) / "model.fp16.onnx"
        if not path.exists():
            bound = {"model_sha256": self.model_sha256, "data_sha256": samples.sha256}
            seen = statistics.load(self._place.path / "stats.npz", **bound)
            nothing = Scales({}, {}, Origin(HALF, self.model_sha256, samples.sha256, {}), seen.ranges, seen.profile)
            with self._stage(HALF, "Writing the model in FP16", 1) as advance:
                quantized = qdq.quantize(model, Plan(Precision.FP16), nothing, Form("fp16"))
                Decisions.of(quantized).save(path.with_name("quantization.json"))
                graph_save.save(quantized.model, path)
                advance(1)

    def evaluations(self, model: ir.Model, samples: SampleSet) -> list[Evaluated]:
        """Evaluate FP32, FP16 and every candidate."""
        declared = self._study.config
        placement = qdq.place(model, declared.plan)
        in_int8 = len(placement.int8)
        total = in_int8 + len(placement.left)
        fp32 = self._place.candidate("fp32") / "model.onnx"
        result = [Evaluated("fp32", "baseline", "", 0, total, fp32, self._evaluate("fp32", fp32, samples))]
        if declared.quantize.rest == "fp16":
            half = self._place.candidate(HALF) / "model.fp16.onnx"
            result.append(Evaluated(HALF, "reference", "", 0, total, half, self._evaluate(HALF, half, samples)))
        tried = [("", declared.calibrate.calibrators), (NOISE, declared.calibrate.noise_control)]
        for prefix, reference in ((prefix, reference) for prefix, names in tried for reference in names):
            calibrator = calibrators.parse(reference, self._study.path.parent)
            name = prefix + calibrator.name
            path = self._place.candidate(name) / "model.int8.onnx"
            found = self._evaluate(name, path, samples)
            kind: Literal["candidate", "control"] = "control" if prefix else "candidate"
            result.append(Evaluated(name, kind, calibrator.name, in_int8, total, path, found))
        return result

    def verified(self, result: StudyResult) -> StudyResult:
        """Build the best candidate with TensorRT, if it is installed."""
        folder, fp32 = self._place.candidate(result.verdict.candidate), self._place.candidate("fp32") / "model.onnx"
        path = folder / "verification.json"
        if not path.exists():
            try:
                with self._stage("verify", f"Building {result.verdict.candidate} with TensorRT", 1) as advance:
                    verify.save(verify.verify(folder / "model.int8.onnx", against=fp32), path)
                    advance(1)
            except (MissingDependencyError, ModelError) as error:
                return replace(result, notes=(*result.notes, f"{result.verdict.candidate} was not verified: {error}"))
        return precision.verified(result, verify.load(path))

    def _evaluate(self, name: str, model: Path, samples: SampleSet) -> Evaluation:
        path = self._place.candidate(name) / "evaluation.json"
        if not path.exists():
            with (
                self._stage(f"evaluate {name}", f"Evaluating: {name}", len(samples)) as advance,
                ort.OrtRunner(model) as runner,
                ExitStack() as opened,
            ):
                metric = self.metric(runner.metadata)
                fp32 = self._place.candidate("fp32") / "model.onnx"
                reference: ort.OrtRunner | None = None
                if isinstance(metric, Agreement):
                    reference = runner if model == fp32 else opened.enter_context(ort.OrtRunner(fp32))
                found = evaluate.evaluate(
                    runner,
                    samples,
                    metric,
                    reference=reference,
                    model_sha256=graph_load.sha256(model),
                    batch_size=2 * self._batch,
                    progress=advance,
                )
                evaluate.save(found if self._study.config.report.include_samples else _without_texts(found), path)
        return evaluate.load(path)

    @contextmanager
    def _stage(self, name: str, title: str, total: int) -> Iterator[Callable[[int], None]]:
        with self._place.timed(name), self._progress.stage(title, total) as advance:
            yield advance


def _without_texts(evaluation: Evaluation) -> Evaluation:
    """Predictions may be patient content: a digest tells equal from different, which is all that comparisons need."""
    samples = tuple(
        replace(sample, prediction="sha256:" + hashlib.sha256(sample.prediction.encode()).hexdigest())
        for sample in evaluation.samples
    )
    return replace(evaluation, samples=samples)
