"""What the float model makes of single samples: a few numbers a tensor and sample.

They say where a sample lies among others (selection, drift) and how much of it given scales clip (coverage).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


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
