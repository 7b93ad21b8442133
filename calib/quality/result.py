"""What was found about a calibration set: plain data for the terminal, the report and machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Curve:
    """One tensor's scale against the number of samples, from resampling the blocks of the set.

    Attributes:
        tensor: its name.
        scale: from the whole set.
        amax: largest |x| of the whole set.
        scale_low, scale_high: band (2.5 to 97.5 %) of the scale at each size, relative to `scale` (1 = equal).
        amax_low, amax_high: the same of amax, relative to `amax`.
        deviation: 95 % quantile of |scale / the scale of endless data - 1| expected at each size; 1 where a set of that
            size may be zero and have no scale.
        growth: of the scale when the last half of the set was added (.02: 2 %), taken to go on once more; a scale that
            keeps growing has no limit, and more data only moves it.
        enough: smallest size whose deviation is within the tolerance; None where none is.
    """

    tensor: str
    scale: float
    amax: float
    scale_low: tuple[float, ...]
    scale_high: tuple[float, ...]
    amax_low: tuple[float, ...]
    amax_high: tuple[float, ...]
    deviation: tuple[float, ...]
    growth: float
    enough: int | None


@dataclass(frozen=True, slots=True)
class Sufficiency:
    """Are there enough samples?"""

    calibrator: str
    tolerance: float  # .01: a scale is within 1 %
    blocks: int  # that the set was cut into; groups stay whole
    sizes: tuple[int, ...]  # numbers of samples at which the curves are known, the whole set last
    curves: tuple[Curve, ...]  # every tensor, worst first
    enough: int | None  # smallest size at which all scales are within the tolerance; None: more than the set has
    estimate: int | None  # if so, how many would be by extrapolation (deviation ~ 1 / sqrt(n)); None: cannot be said
    note: str = ""  # what else a reader must know: another calibrator was judged


@dataclass(frozen=True, slots=True)
class Clip:
    """How much of the values of a tensor, on some samples, is above what the scale keeps."""

    tensor: str
    column: str  # "" for all samples
    value: str
    samples: int
    share: float  # of the values
    hit: float  # share of the samples that hold such a value
    unusual: float  # share of the samples that are clipped more than 95 % of the calibration samples are
    overshoot: float  # largest |x| over 127 * scale; 1 or less: nothing is clipped
    calibration: float | None  # share on the calibration set itself; None where that was not counted


@dataclass(frozen=True, slots=True)
class Coverage:
    """Do the scales hold the values of other data? What comes first is worst as `quality.coverage` explains."""

    scales: str  # name of the calibrator
    samples: int
    overall: float  # share of all tensors' values that is clipped
    tensors: tuple[Clip, ...]  # every tensor, over all samples, worst first
    slices: tuple[Clip, ...]  # the worst tensor of every slice, worst slice first
    worst: tuple[Clip, ...]  # tensor and slice, worst first
    uncovered: tuple[str, ...]  # "device = thermal": slices of which the calibration set holds no sample
    other: str = ""  # name of the set on which it was counted


@dataclass(frozen=True, slots=True)
class Tail:
    """Who is in the tenth of both samples that is highest (upper) or lowest?"""

    side: Literal["upper", "lower"]
    calibration: float  # share of the calibration set that is in it
    other: float
    effect: float  # (other - calibration) / (other + calibration): 1 where the calibration set has nothing like it
    p: float  # corrected for all features; of more of the other than of the calibration set


@dataclass(frozen=True, slots=True)
class Shift:
    """How far apart two samples are in one feature of one tensor."""

    tensor: str
    kind: Literal["input", "activation"]
    feature: Literal["amax", "mean"]  # of |x|, a sample
    effect: float  # Cliff's delta, -1 to 1: P(other > calibration) - P(other < calibration)
    ratio: float  # median of the other over that of the calibration set
    p: float  # corrected for all features
    tail: Tail  # the one that more of the other sample is in


@dataclass(frozen=True, slots=True)
class Classifier:
    """A classifier that tries to tell the two samples apart; effect 0: it cannot, 1: always."""

    effect: float  # 2 AUC - 1 on samples it was not trained on
    p: float  # corrected for all features too
    features: tuple[str, ...]  # "tensor: largest |x|": that its score follows most
    tail: Tail  # of its score: the tenth that looks least like the calibration set


@dataclass(frozen=True, slots=True)
class Drift:
    """Does a later sample look like the calibration set?"""

    other: str  # what it was compared with
    samples: tuple[int, int]  # of the calibration set and of the other
    groups: tuple[int, int]  # that were permuted; equal to samples where there are none
    limit: float  # of |effect|
    level: float  # of p
    shifts: tuple[Shift, ...]  # every feature, largest effect first
    classifier: Classifier
    beyond: bool  # an effect beyond the limit that is not chance
    reasons: tuple[str, ...]  # what is beyond, in words
    detectable: float  # |effect| of a typical feature from which on p is within the level
    notes: tuple[str, ...]  # what limits the answer


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A sample of one set that is also in the other, or nearly so."""

    calibration: str  # id
    other: str  # id
    kind: Literal["exact", "near"]
    similarity: float  # 1: equal


@dataclass(frozen=True, slots=True)
class Duplicates:
    """Which samples are on both sides?"""

    other: str
    exact: int
    near: int
    pairs: tuple[Duplicate, ...]  # exact first, then by similarity; at most 100
    method: str


@dataclass(frozen=True, slots=True)
class ScaleDifference:
    """One tensor's scale in two sets."""

    tensor: str
    first: float
    second: float
    ratio: float  # second / first
    noise: float  # 95 % quantile of |ratio - 1| that resampling either set explains
    clipped_first: float  # share of the evaluation values above 127 * scale
    clipped_second: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Which of two calibration sets serves better?"""

    calibrator: str
    first: str
    second: str
    differences: tuple[ScaleDifference, ...]  # every tensor, largest |log ratio| first
    beyond_noise: int
    evaluation: int  # samples on which clipping was counted
    clipped_first: float  # share of all values
    clipped_second: float
    less_clipping: Literal["first", "second", "equal"]


@dataclass(frozen=True, slots=True)
class Quality:
    """Everything that was judged; None: not asked, and `notes` say why."""

    samples: int
    sufficiency: Sufficiency | None
    coverage: tuple[Coverage, ...]  # one for each scales
    drift: tuple[Drift, ...]
    duplicates: tuple[Duplicates, ...]
    notes: tuple[str, ...]
