"""What the float model makes of single samples: a few numbers a tensor and sample, and their file, features.npz.

They say where a sample lies among others (selection, drift) and how much of it given scales clip (coverage).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from calib import files
from calib.errors import DataError

FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """n samples and t tensors, the model's inputs first, then inner tensors in graph order.

    Attributes:
        ids: of the n samples.
        tensors: names of the t tensors.
        inputs: how many of them are inputs of the model.
        amax: (n, t), float32: largest |x| of the sample's tensor.
        mean: (n, t), float32: mean of |x|.
        sizes: (n, t), int64: number of values.
        clipped: by scales' name, (n, t), int64: number of values whose |x| is above 127 * scale; -1 where the scales
            hold none for the tensor.
    """

    ids: tuple[str, ...]
    tensors: tuple[str, ...]
    inputs: int
    amax: npt.NDArray[np.float32]
    mean: npt.NDArray[np.float32]
    sizes: npt.NDArray[np.int64]
    clipped: dict[str, npt.NDArray[np.int64]]

    def vectors(self) -> npt.NDArray[np.float64]:
        """Return a vector a sample, (n, 2 t): log2 of the largest and of the mean |x| of every tensor, 2**-40 at least."""
        both = np.hstack([self.amax, self.mean]).astype(np.float64)
        return np.asarray(np.log2(np.maximum(both, 2.0**-40)))


def save(features: Features, path: Path, *, model_sha256: str, data_sha256: str) -> None:
    """Write features.npz."""
    arrays: dict[str, npt.NDArray[Any]] = {
        "version": np.asarray(FORMAT_VERSION),
        "model_sha256": np.asarray(model_sha256),
        "data_sha256": np.asarray(data_sha256),
        "ids": np.asarray(features.ids, np.str_),
        "tensors": np.asarray(features.tensors, np.str_),
        "inputs": np.asarray(features.inputs),
        "amax": features.amax,
        "mean": features.mean,
        "sizes": features.sizes,
        "scales": np.asarray(list(features.clipped), np.str_),
    }
    for i, counts in enumerate(features.clipped.values()):
        arrays[f"clipped_{i}"] = counts
    files.write_npz(path, arrays)


def load(path: Path, *, model_sha256: str, data_sha256: str) -> Features:
    """Read features.npz.

    Raises:
        DataError: not such a file, damaged, of another version, or of another model or set.
    """
    arrays: dict[str, Any] = files.read_npz(path)
    try:
        if int(arrays["version"]) != FORMAT_VERSION:
            raise DataError(
                f"{path} has version {arrays['version']} and this calib reads {FORMAT_VERSION}; make it again"
            )
        for key, wanted in (("model_sha256", model_sha256), ("data_sha256", data_sha256)):
            if str(arrays[key]) != wanted:
                raise DataError(f"{path} belongs to another {key.partition('_')[0]} ({str(arrays[key])[:12]})")
        clipped = {str(name): arrays[f"clipped_{i}"] for i, name in enumerate(arrays["scales"])}
        names = tuple(map(str, arrays["ids"])), tuple(map(str, arrays["tensors"]))
        return Features(*names, int(arrays["inputs"]), arrays["amax"], arrays["mean"], arrays["sizes"], clipped)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise DataError(f"{path} is damaged ({type(error).__name__}: {error}); make it again") from error
