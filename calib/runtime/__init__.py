"""Runtimes: what runs a model on a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt

from calib.data.batch import InputSpec

Arrays = Mapping[str, npt.NDArray[np.generic]]


class Runner(Protocol):
    """Runs one model.

    Attributes:
        description: with what and how; recorded beside every number that it produces.
        inputs: the model's inputs by name.
    """

    description: str
    inputs: Mapping[str, InputSpec]

    def run(self, feeds: Arrays) -> Arrays:
        """Return the outputs, by name, of one batch of inputs."""
        ...
