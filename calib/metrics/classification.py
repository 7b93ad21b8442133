"""Classification: how often the class is right, class by class, and how far the model's confidence can be trusted."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import special

from calib.errors import ConfigError, DataError
from calib.metrics import reading
from calib.metrics.base import Outputs, SampleScore

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_SUM = 0.01  # how far from 1 declared probabilities may add up to: FP16 rounds
_ALIKE = 1e-4  # how near to 1 undeclared numbers add up where they are probabilities: FP32 rounds
_LEAST = float(np.finfo(np.float32).smallest_subnormal)  # what a probability that float32 rounded to 0 counts as
_MOST = 100  # classes whose scores are kept for each sample without being asked for
_SHOWN = 10  # classes in a message


@dataclass(frozen=True, slots=True)
class Classification:
    """One class a sample.

    top1, top5, ...: share of the samples whose right class is among the k largest; of equal numbers the first is the larger.
    macro_f1: mean of the classes' F1. ece: expected calibration error of the largest probability, 15 bins. auroc: area under the
    ROC curve, for more than two classes the mean of each against the rest. `calib.aggregates` has the formulas.

    The output is [n, classes], also [n, classes, 1, 1]. One column, or [n], is the number of the second of two classes, whose
    threshold is a probability of 0.5 (itself still the first class).

    A sample is right when it counts for top1. The margin is the log-probability of the right class less that of the best other.

    Attributes:
        classes: names in the output's order; () where right answers are class numbers, from 0.
        top: each k.
        output: name; "" for the only one.
        outputs: "logits" go through softmax (one column: sigmoid); "probabilities" are taken as they are. None is logits, and an
            error where all rows of a batch are probabilities, or where one column leaves it open.
        auroc: whether there is an auroc, which keeps a number for each class and sample. None is True, and an error above 100
            classes.
    """

    classes: tuple[str, ...] = ()
    top: tuple[int, ...] = (1,)
    output: str = ""
    outputs: Literal["logits", "probabilities"] | None = None
    auroc: bool | None = None

    def __post_init__(self) -> None:
        """Check the options."""
        reading.check_kind(self.outputs)
        if not all(isinstance(name, str) for name in self.classes) or len(set(self.classes)) < len(self.classes):
            raise ConfigError(
                "classes must list the name of each class, each but once, in the order of the model's output"
            )
        if len(self.classes) == 1:
            raise ConfigError("classes lists one class, and a classifier tells two or more apart")
        ranks = all(isinstance(k, int) and not isinstance(k, bool) and k > 0 for k in self.top)
        if not self.top or not ranks or len(set(self.top)) < len(self.top):
            raise ConfigError(f"top must list different numbers from 1, not {list(self.top)}")

    @property
    def higher_is_better(self) -> Mapping[str, bool]:
        """Direction of each score."""
        scores = {f"top{k}": True for k in self.top} | {"macro_f1": True, "ece": False}
        return scores if self.auroc is False else scores | {"auroc": True}

    @property
    def aggregates(self) -> Mapping[str, str]:
        """Aggregate of each score that is no ratio."""
        return {"macro_f1": "macro-f1", "ece": "ece"} | ({} if self.auroc is False else {"auroc": "auroc"})

    def score(self, outputs: Outputs, targets: Sequence[str]) -> list[SampleScore]:
        """Compare the classes of a batch with the right ones.

        Raises:
            DataError: the output does not fit, does not hold what `outputs` says, or a right answer is no class.
        """
        numbers, logs = self._read(outputs, targets)
        classes = numbers.shape[1]
        self._check(classes)
        right = np.array([self._number(target, classes) for target in targets], np.int64)
        rows, chosen, ranks = np.arange(len(right)), numbers.argmax(axis=1), _ranks(numbers, right)
        confidence = np.minimum(np.exp(logs.max(axis=1)), 1)
        own, others = logs[rows, right], logs.copy()
        others[rows, right] = -np.inf
        margins = own - others.max(axis=1)
        areas = logs[:, 1:] - logs[:, :1] if classes == 2 else logs
        return [
            SampleScore(
                prediction=self.classes[chosen[row]] if self.classes else str(chosen[row]),
                values={f"top{k}": (float(ranks[row] < k), 1.0) for k in self.top}
                | {"macro_f1": (float(right[row]), float(chosen[row]))}
                | {"ece": (float(confidence[row]), float(ranks[row] == 0))}
                | ({} if self.auroc is False else {"auroc": (float(right[row]), *areas[row].tolist())}),
                right=bool(ranks[row] == 0),
                margin=float(margins[row]),
            )
            for row in rows
        ]

    def _read(self, outputs: Outputs, targets: Sequence[str]) -> tuple[Floats, Floats]:
        """Return the numbers that order the classes and their log-probabilities, both (n, classes)."""
        wanted = f"metric classification needs floats [n, {len(self.classes) or 'classes'}]"
        array = reading.read(outputs, self.output, targets, wanted)
        columns = array.shape[1] if array.ndim > 1 else 1
        if array.size != len(targets) * columns or not columns or array.dtype.kind != "f":
            raise DataError(f"{wanted} and the model gave {reading.shapes(outputs)}")
        if self.classes and len(self.classes) != max(columns, 2):
            raise DataError(
                f"{wanted} and the model gave {reading.shapes(outputs)}: classes lists {', '.join(self.classes[:_SHOWN])}"
            )
        values = np.asarray(array, np.float64).reshape(len(targets), columns)
        if self.outputs == "probabilities":
            return _probable(values)
        if self.outputs is None:
            if columns == 1:
                raise reading.ask_kind("metric classification: the output's one column may be of either kind")
            if values.min(initial=0) >= 0 and (np.abs(values.sum(axis=1) - 1) < _ALIKE).all() and len(values):
                raise reading.ask_kind("metric classification: the output looks like probabilities, not like logits")
        if columns == 1:
            values = np.hstack([np.zeros_like(values), values])
        return values, np.asarray(special.log_softmax(values, axis=1))

    def _check(self, classes: int) -> None:
        if max(self.top) >= classes:
            raise DataError(
                f"metric classification: top{max(self.top)} of {classes} classes is always right; set top to less"
            )
        if self.auroc is None and classes > _MOST:
            raise DataError(
                f"metric classification: auroc would keep {classes} numbers for each sample; set auroc to false, or to true "
                "where this is wanted"
            )

    def _number(self, target: str, classes: int) -> int:
        if self.classes:
            if target in self.classes:
                return self.classes.index(target)
            more = ", ..." if classes > _SHOWN else ""
            raise DataError(
                f"metric classification: the right answer {target!r} is none of the classes "
                f"{', '.join(self.classes[:_SHOWN])}{more} (set classes to [] where right answers are class numbers)"
            )
        if target.isdecimal() and int(target) < classes:
            return int(target)
        raise DataError(
            f"metric classification: the right answer {target!r} is no class number from 0 to {classes - 1}; where right answers "
            "are names, classes must list them in the order of the model's output"
        )


def classification(
    metadata: Mapping[str, str],
    classes: Sequence[str] | None = None,
    top: Sequence[int] = (1,),
    output: str = "",
    outputs: Literal["logits", "probabilities"] | None = None,
    auroc: bool | None = None,
) -> Classification:
    """Make the metric; the options are the attributes of Classification.

    Without `classes`, the names are those of the model's metadata: "character", a line each, as PaddleOCR has it, or "names", a
    dict by number, as Ultralytics has it. Without either, right answers are class numbers.
    """
    names = _listed(metadata) if classes is None else classes
    for option, value in (("classes", names), ("top", top)):
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{option} must be a list, not {value!r}")
    return Classification(tuple(names), tuple(top), output, outputs, auroc)


def _listed(metadata: Mapping[str, str]) -> tuple[str, ...]:
    if "character" in metadata:
        return tuple(metadata["character"].splitlines())
    if "names" not in metadata:
        return ()
    try:
        names = ast.literal_eval(metadata["names"])
        if not isinstance(names, dict | list):
            raise ValueError(type(names).__name__)
        return tuple(str(names[number]) for number in range(len(names)))
    except (ValueError, SyntaxError, KeyError) as error:
        raise ConfigError(
            f"the model's metadata 'names' is no dict of names by number ({metadata['names'][:80]!r}): set the option classes"
        ) from error


def _probable(values: Floats) -> tuple[Floats, Floats]:
    """Return probabilities (n, classes >= 2) and their logarithms."""
    one = values.shape[1] == 1
    bad = (values < 0).any(axis=1) | (values > 1 + _SUM).any(axis=1)
    if not one:
        bad |= np.abs(values.sum(axis=1) - 1) >= _SUM
    if bad.any():
        row = int(bad.argmax())
        found = f"from {values[row].min():.4g} to {values[row].max():.4g}" + (
            "" if one else f", sum {values[row].sum():.4g}"
        )
        raise DataError(
            f"metric classification: row {row} of the batch holds no probabilities ({found}); they are 0 to 1 and add up to 1. "
            'Set the option outputs to "logits"'
        )
    if one:
        values = np.hstack([np.maximum(1 - values, 0), values])
    logs = np.log(np.maximum(values, _LEAST))
    return values, np.asarray(logs - special.logsumexp(logs, axis=1, keepdims=True))


def _ranks(numbers: Floats, right: Ints) -> Ints:
    """Return how many classes stand before the right one, of equal ones the earlier."""
    own = np.take_along_axis(numbers, right[:, None], axis=1)
    earlier = np.arange(numbers.shape[1]) < right[:, None]
    return np.asarray(((numbers > own) | ((numbers == own) & earlier)).sum(axis=1))
