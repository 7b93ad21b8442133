"""quantization.json: what was decided when a model was quantized."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from calib import files
from calib.errors import DataError
from calib.qdq.placement import KEPT_BY_PLAN
from calib.qdq.quantize import Quantized

_FORMAT, _VERSION = "calib-quantization", 1


@dataclass(frozen=True, slots=True)
class Decisions:
    """What the rules of `calib.qdq` and the plan made of a model.

    Attributes:
        rest: type of what is not INT8: "fp16" or "fp32".
        int8: layers in INT8, in graph order.
        left: why each other layer stays in float, by name.
        kept: why, by node, for each node in FP32 where FP16 was asked for.
        reads: nodes that are no layers and read a tensor through Q/DQ, as "node: tensor".
        shared: groups of tensors with one scale.
        findings: what lint says, a sentence each.
    """

    rest: str
    int8: tuple[str, ...]
    left: Mapping[str, str]
    kept: Mapping[str, str]
    reads: tuple[str, ...]
    shared: tuple[tuple[str, ...], ...]
    findings: tuple[str, ...]

    @property
    def kept_by_plan(self) -> int:
        """Number of layers that stay in float because the plan says so, not by a rule."""
        return sum(reason.startswith(KEPT_BY_PLAN) for reason in self.left.values())

    @classmethod
    def of(cls, quantized: Quantized) -> Decisions:
        """Return what was decided for a model."""
        return cls(
            quantized.form.rest,
            tuple(layer.name for layer in quantized.placement.int8),
            dict(quantized.placement.left),
            dict(quantized.kept),
            tuple(f"{read.node}: {read.tensor}" for read in quantized.reads),
            quantized.shared,
            tuple(str(finding) for finding in quantized.findings),
        )

    def save(self, path: Path) -> None:
        """Write quantization.json."""
        files.write_json(path, _FORMAT, _VERSION, asdict(self))

    @classmethod
    def load(cls, path: Path) -> Decisions:
        """Read quantization.json.

        Raises:
            DataError: not such a file, or damaged.
        """
        document = files.read_json(path, _FORMAT, _VERSION)
        try:
            return cls(
                str(document["rest"]),
                tuple(document["int8"]),
                dict(document["left"]),
                dict(document["kept"]),
                tuple(document["reads"]),
                tuple(tuple(group) for group in document["shared"]),
                tuple(document["findings"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path} is damaged ({type(error).__name__}: {error}); quantize again") from error
