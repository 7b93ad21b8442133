"""What a study found: the one object that the report, the tracker and later comparisons read.

`study.json` is this object written by `save`; `load` reads it back unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from calib.evidence.result import Evidence, Interval
from calib.quality.result import Quality

FORMAT_VERSION = 4


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The model as it was given and what normalization made of it."""

    source: str  # as the study names it, e.g. "package:rapidocr-onnxruntime/...onnx"
    sha256: str
    size_bytes: int
    opset: int  # as published
    normalized_opset: int
    inputs: dict[str, str]  # name -> "float32[N, 3, 48, W]"
    outputs: dict[str, str]
    parameters: int  # number of weight values
    layers: dict[str, int]  # operator -> number of layers that may be quantized
    normalization: tuple[str, ...]  # one sentence for each pass that changed the graph
    normalization_max_error: float  # largest |output difference| before and after, over the compared samples


@dataclass(frozen=True, slots=True)
class SetInfo:
    """A calibration or evaluation set."""

    samples: int
    sha256: str  # of the manifest's sample hashes
    by_stratum: dict[str, int]  # values of the recipe's stratify columns -> number of samples
    groups: int  # number of distinct groups (documents, patients); 0 when the recipe names none


@dataclass(frozen=True, slots=True)
class SliceScore:
    """The budget metric on one slice of the evaluation set."""

    samples: int
    value: float
    delta: float  # to FP32 on the same samples; 0 for FP32 itself
    interval: Interval | None  # of delta; None for FP32, and where it is not defined


@dataclass(frozen=True, slots=True)
class Candidate:
    """One model that was evaluated: FP32 itself, FP16 for reference, a calibrator, or a control."""

    name: str  # "fp32", "fp16", "mse", "percentile-99.99", "noise-max"
    kind: Literal["baseline", "reference", "candidate", "control"]
    calibrator: str  # "" for FP32 and FP16
    int8_layers: int
    total_layers: int
    size_bytes: int
    sha256: str  # of the evaluated ONNX file
    metrics: dict[str, float]  # overall value of each metric
    delta: float  # budget metric, minus FP32's
    interval: Interval | None  # of delta; None for FP32, and where it is not defined
    slices: dict[str, dict[str, SliceScore]]  # column -> value -> score, budget metric
    agreement: float  # share of samples whose prediction equals FP32's
    broken: int | None  # samples right in FP32 and wrong here; None where the metric knows no right and wrong
    fixed: int | None  # samples wrong in FP32 and right here
    seconds: float  # evaluation time


@dataclass(frozen=True, slots=True)
class TensorRange:
    """A tensor's distribution and each candidate's clipping threshold."""

    tensor: str
    consumers: tuple[str, ...]  # layers that read it
    amax: float
    edges_log2: tuple[float, ...]  # n + 1 ascending edges of |x|, log2
    share: tuple[float, ...]  # n shares of the non-zero values in each bin
    zeros: float  # share of values that are exactly 0
    thresholds: dict[str, float]  # candidate name -> amax kept (values above are clipped)
    clipped: dict[str, float]  # candidate name -> share of values above the threshold
    sqnr_db: dict[str, float]  # candidate name -> signal to quantization noise of this tensor


@dataclass(frozen=True, slots=True)
class Flip:
    """A sample that is right in FP32 and wrong in the candidate ("broken"), or the other way round ("fixed")."""

    candidate: str
    kind: Literal["broken", "fixed"]
    sample: str  # id
    lost: float | None  # margin in FP32 minus margin in the candidate; None where the metric has no margin
    metadata: dict[str, str]
    target: str | None  # None unless the study may show samples
    baseline_prediction: str | None
    prediction: str | None
    image: str | None  # path of a PNG relative to the run folder; None when not shown


@dataclass(frozen=True, slots=True)
class LayerPrecision:
    """What one layer of the best candidate is planned and built in."""

    name: str
    operator: str
    asked: str  # "int8", "fp16" or "fp32"
    built: str  # the same, "removed" or "unknown"; "" when nothing was built
    reason: str  # why it is not INT8, or why it was built otherwise; "" where all is well


@dataclass(frozen=True, slots=True)
class Built:
    """What TensorRT made of the best candidate."""

    builder: str  # "TensorRT-RTX 1.7.1.116"
    seconds: float  # of the candidate's build
    kernels: int  # built layers that compute
    kernels_fp32: int  # of the FP32 model
    int8_asked: int
    int8_built: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer, in words for a person and in fields for a machine."""

    decision: Literal["deploy", "deploy with layers in FP16", "keep FP16", "keep FP32", "not enough data"]
    passed: bool  # whether the decision is to deploy
    candidate: str  # best candidate by the budget metric
    headline: str  # "INT8 (mse) keeps CER within 0.005 of FP32"
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StudyResult:
    """Everything a study found."""

    name: str
    description: str
    created: str  # ISO 8601, UTC, when the run folder was made
    run: str  # "<time>-<hash>"
    command: str  # that reproduces it
    model: ModelInfo
    recipe: str
    calibration: SetInfo
    evaluation: SetInfo
    budget_metric: str
    higher_is_better: dict[str, bool]  # of each metric
    max_drop: float  # budget: how much worse than FP32 is still acceptable, in the metric's unit
    runtime: str  # which runtime and mode produced the numbers
    candidates: tuple[Candidate, ...]  # the baseline first, FP16, candidates in the study's order, then controls
    evidence: Evidence  # of the best candidate
    tensors: tuple[TensorRange, ...]  # most clipped first
    flips: tuple[Flip, ...]
    precision: tuple[LayerPrecision, ...]  # of the best candidate, in graph order
    quality: Quality | None  # of the calibration set; None when it was not judged
    built: Built | None  # None when TensorRT is not installed, refused the model, or was not asked; a note says which
    verdict: Verdict
    include_samples: bool
    seconds: dict[str, float]  # stage -> wall time
    environment: dict[str, str]  # package or system property -> version
    notes: tuple[str, ...]  # what was skipped, chosen or fell back
    tracking_uri: str  # where the runs are tracked; "" when they are not
