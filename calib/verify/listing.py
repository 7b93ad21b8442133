"""What TensorRT built: the layer list of its build log, or of the engine inspector, as data.

Both hold, for each built layer, its type, the types and shapes of what it reads and writes, and the ONNX nodes it was
made of. Nodes are found by the names of `calib.verify.naming`, so that no name of the model can be misread.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calib.errors import ModelError
from calib.verify import naming

_SECTION = re.compile(r", (Inputs: \[|Constants: \[|Outputs: \[|TacticName: |Metadata: )")
_TENSOR = re.compile(r"Dimensions: \[([^\]]*)\].*?Datatype: (\w+)")
_KIND = (
    ("int8", ("int8",)),
    ("fp16", ("half", "fp16")),
    ("bf16", ("bfloat16", "bf16")),
    ("fp8", ("fp8",)),
    ("fp32", ("float", "fp32")),
)
COMPUTED = tuple(kind for kind, _ in _KIND)
"""Types that layers compute in; the others hold shapes, indices and conditions."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """What a built layer reads or writes.

    Attributes:
        kind: its type: one of COMPUTED, "other", or "unknown" where TensorRT does not say.
        shape: -1 where it varies.
    """

    kind: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Kernel:
    """A built layer.

    Attributes:
        name: TensorRT's, with ONNX nodes by their keys.
        type: TensorRT's, as "correlation" or "kgen" (TensorRT-RTX), "CaskConvolution" (TensorRT).
        inputs: tensors that depend on the data.
        constants: weights, biases and scales.
        outputs: what it writes.
        nodes: keys of the ONNX nodes that it was made of.
        tactic: name of the kernel on the GPU.
    """

    name: str
    type: str
    inputs: tuple[Tensor, ...]
    constants: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    nodes: tuple[str, ...]
    tactic: str = ""

    @property
    def counts(self) -> bool:
        """Whether it computes on the GPU; signals, waits and shape arithmetic do not count."""
        tensors = (*self.inputs, *self.constants, *self.outputs)
        return self.type.lower() not in ("noop", "memset") and any(
            tensor.kind in (*COMPUTED, "unknown") for tensor in tensors
        )


def from_log(message: str) -> tuple[Kernel, ...]:
    """Read the message "Layers: ..." of a verbose build log."""
    lines = message.partition("I/O Tensors:")[0].splitlines()
    return tuple(_from_line(line) for line in lines if line.startswith("Name: ") and ", LayerType: " in line)


def from_inspector(text: str) -> tuple[Kernel, ...]:
    """Read the engine inspector's JSON.

    Raises:
        ModelError: it names layers only: the engine was built without detailed profiling verbosity.
    """
    layers = json.loads(text, strict=False).get("Layers", [])  # metadata is joined by control characters
    if not all(isinstance(layer, Mapping) for layer in layers):
        raise ModelError("the engine inspector names the layers only; build with ProfilingVerbosity.DETAILED")
    return tuple(_from_entry(layer) for layer in layers)


def _from_line(line: str) -> Kernel:
    head, *rest = _SECTION.split(line)
    sections = dict(zip(rest[::2], rest[1::2], strict=True))
    name, _, kind = head.removeprefix("Name: ").rpartition(", LayerType: ")

    def read(title: str) -> tuple[Tensor, ...]:
        found = _TENSOR.findall(sections.get(f"{title}: [", ""))
        return tuple(Tensor(_kind(datatype), _shape(sizes.split(","))) for sizes, datatype in found)

    nodes = naming.keys(name + sections.get("Metadata: ", ""))
    tactic = sections.get("TacticName: ", "").partition(",")[0]
    return Kernel(name, kind, read("Inputs"), read("Constants"), read("Outputs"), nodes, tactic)


def _from_entry(entry: Mapping[str, Any]) -> Kernel:
    def read(title: str) -> tuple[Tensor, ...]:
        return tuple(
            Tensor(
                _kind(str(item.get("Datatype", item.get("Format/Datatype", "")))), _shape(item.get("Dimensions", ()))
            )
            for item in entry.get(title) or ()
        )

    # TensorRT's own kernels state their weights by type and count.
    stated = [entry[title] for title in ("Weights", "Bias") if isinstance(entry.get(title), Mapping)]
    weights = tuple(Tensor(_kind(str(item.get("Type"))), _shape([item.get("Count", 0)])) for item in stated)
    name = str(entry.get("Name", ""))
    nodes = naming.keys(name + str(entry.get("Metadata", "")))
    kind, tactic = str(entry.get("LayerType", "")), str(entry.get("TacticName", ""))
    return Kernel(name, kind, read("Inputs"), read("Constants") + weights, read("Outputs"), nodes, tactic)


def _kind(text: str) -> str:
    """Return the type in "Half", "Channel major FP16 format" or "Four wide channel vectorized row major Int8 format"."""
    text = text.lower()
    if not text or text.startswith("n/a") or "not available" in text:
        return "unknown"
    words = re.findall(r"[a-z]+[0-9]*", text)
    return next((kind for kind, names in _KIND if any(word.startswith(names) for word in words)), "other")


def _shape(sizes: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(size) for size in sizes if str(size).strip())
