"""The accuracy of a classifier: an example of a metric of your own, named by the study file beside it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from calib.errors import DataError
from calib.metrics import SampleScore


@dataclass(frozen=True)
class Accuracy:
    """Share of samples whose largest score is that of the right class; the only output is [n, classes]."""

    classes: tuple[str, ...]
    higher_is_better: Mapping[str, bool] = field(default_factory=lambda: {"accuracy": True})

    def score(self, outputs: Mapping[str, NDArray[np.generic]], targets: Sequence[str]) -> list[SampleScore]:
        """Compare the class with the largest score with the right one."""
        (scores,) = outputs.values() if len(outputs) == 1 else (np.zeros(0),)
        if scores.shape[1:] != (len(self.classes),):
            shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in outputs.items())
            raise DataError(f"accuracy needs one output [n, {len(self.classes)}] and the model gave {shapes}")
        unknown = sorted(set(targets) - set(self.classes))
        if unknown:
            raise DataError(f"the right answer {unknown[0]!r} is none of the classes {', '.join(self.classes)}")
        found = [self.classes[index] for index in scores.argmax(axis=1)]
        return [
            SampleScore(name, {"accuracy": (float(name == target), 1.0)})
            for name, target in zip(found, targets, strict=True)
        ]


def accuracy(classes: Sequence[str]) -> Accuracy:
    """The metric over these classes, in the order of the model's output."""
    return Accuracy(tuple(classes))
