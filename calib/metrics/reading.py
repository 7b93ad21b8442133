"""Which of a model's outputs a metric reads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from calib.errors import ConfigError, DataError
from calib.metrics.base import Outputs

Array = npt.NDArray[np.generic]

KINDS = ("logits", "probabilities")
"""What numbers of classes are, as the study's option `outputs` says."""


def shapes(outputs: Outputs) -> str:
    """Return what a model gave, in words."""
    return ", ".join(f"{name} {array.dtype}{list(array.shape)}" for name, array in outputs.items()) or "nothing"


def read(outputs: Outputs, output: str, targets: Sequence[str], wanted: str) -> Array:
    """Return the output called `output`, or the only one where that is "".

    Args:
        outputs: of the model.
        output: name, or "".
        targets: right answers, as many as the output has rows.
        wanted: what the metric needs, for the message.

    Raises:
        DataError: there is no such output, it has not a row for each right answer, or it holds NaN or Inf.
    """
    if output not in outputs and (output or len(outputs) != 1):
        reads = f"output '{output}'" if output else "one output"
        raise DataError(f"{wanted}; it reads {reads} and the model gave {shapes(outputs)}: set the option output")
    name = output or next(iter(outputs))
    array = outputs[name]
    if array.shape[:1] != (len(targets),):
        raise DataError(f"{wanted} with n = {len(targets)} and the model gave {shapes(outputs)}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        row = next(row for row, values in enumerate(array) if not np.isfinite(values).all())
        value = np.asarray(array[row])[~np.isfinite(array[row])].flat[0]
        raise DataError(f"output '{name}' holds {value} in row {row} of the batch; this cannot be scored")
    return array


def check_kind(kind: str | None) -> None:
    """Check the option `outputs`.

    Raises:
        ConfigError: it is something else than what KINDS lists.
    """
    if kind is not None and kind not in KINDS:
        raise ConfigError(f'outputs must be "logits" or "probabilities", not {kind!r}')


def ask_kind(what: str) -> DataError:
    """Return the error that asks for the option `outputs`."""
    return DataError(f'{what}: set the option outputs to "logits" or "probabilities"')
