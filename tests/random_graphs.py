"""Random small models: shapes, operators, opsets and the quirks of exporters.

A graph is drawn by a `random.Random`: hypothesis has one whose draws it shrinks, and a seed gives the same graph again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from random import Random

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from .random_moves import first_step, steps_for
from .random_steps import Making, Tensor, exact

OPSETS = range(11, 22)
SAMPLES = 4
WORDS = 10
QUIRKS = (
    "unnamed nodes",
    "one name for all nodes",
    "weights in Constant nodes",
    "weights cast from another type",
    "initializers listed as inputs",
    "an unused initializer",
    "dead nodes",
    "identities",
    "stale shapes",
    "FP16",
)
PATTERNS = ("t{}", "t{}", "/block.{}/Out:0", "a b [{}]", "{}")


@dataclass(frozen=True)
class Graph:
    """A model as drawn; `plain` is what it means, `wild` how an exporter wrote it.

    Attributes:
        opset: of both.
        batch: size of the first axis of inputs and outputs; None where it is free.
        nodes: in order.
        inputs: graph inputs.
        ids: inputs that are word numbers, int64.
        outputs: graph outputs; an inner tensor may be among them.
        inner: all other tensors.
        weights: FP32 initializers, with values that FP16 can hold.
        others: initializers whose type is not the model's: shapes, axes, the scales of Resize.
        quirks: of QUIRKS.
        plan: which layers are named to be in INT8 or in float: "default", "all", "mixed".
        size: of the samples' values.
        seed: of the samples.
    """

    opset: int
    batch: int | None
    nodes: tuple[onnx.NodeProto, ...]
    inputs: tuple[Tensor, ...]
    ids: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    inner: tuple[Tensor, ...]
    weights: Mapping[str, np.ndarray]
    others: Mapping[str, np.ndarray]
    quirks: frozenset[str]
    plan: str
    size: float
    seed: int

    def samples(self) -> dict[str, np.ndarray]:
        """Return the model's inputs, [SAMPLES, ...], in the type of `wild`."""
        draws = np.random.default_rng(self.seed)
        kind = np.float16 if "FP16" in self.quirks else np.float32
        shapes = {tensor.name: (SAMPLES, *tensor.shape) for tensor in (*self.inputs, *self.ids)}
        found = {t.name: exact(draws.normal(0, self.size, shapes[t.name])).astype(kind) for t in self.inputs}
        return found | {t.name: draws.integers(0, WORDS, shapes[t.name]) for t in self.ids}

    def plain(self) -> onnx.ModelProto:
        """Return the model in FP32 without quirks."""
        model = self._model(TensorProto.FLOAT, self.nodes, {**self.weights, **self.others})
        onnx.checker.check_model(model, full_check=True)
        return model

    def wild(self) -> onnx.ModelProto:
        """Return the model with its quirks."""
        kind = TensorProto.FLOAT16 if "FP16" in self.quirks else TensorProto.FLOAT
        own, other = (np.float16, np.float32) if "FP16" in self.quirks else (np.float32, np.float16)
        weights = {name: array.astype(own) for name, array in self.weights.items()}
        before, nodes = [], [onnx.NodeProto.FromString(node.SerializeToString()) for node in self.nodes]
        for index, name in enumerate(sorted(weights)):
            if "weights cast from another type" in self.quirks and index % 2 == 0:
                weights[f"{name}_stored"] = weights.pop(name).astype(other)
                before.append(helper.make_node("Cast", [f"{name}_stored"], [name], to=kind))
            elif "weights in Constant nodes" in self.quirks:
                tensor = numpy_helper.from_array(weights.pop(name))
                before.append(helper.make_node("Constant", [], [name], value=tensor))
        if "identities" in self.quirks:
            nodes = list(_with_identities(nodes))
        if "dead nodes" in self.quirks:
            made = next(node.output[0] for node in reversed(nodes))
            nodes += [helper.make_node("Shape", [made], ["dead"]), helper.make_node("Size", ["dead"], ["dead_too"])]
        if "an unused initializer" in self.quirks:
            weights["unused"] = np.ones((3, 3), own)
        nodes = [*before, *nodes]
        for index, node in enumerate(nodes):
            node.name = "" if "unnamed nodes" in self.quirks else f"{node.op_type}_{index}"
            node.name = "node" if "one name for all nodes" in self.quirks else node.name
        model = self._model(kind, nodes, {**weights, **self.others})
        onnx.checker.check_model(model)
        return model

    def _model(self, kind: int, nodes: Iterable[onnx.NodeProto], weights: Mapping[str, np.ndarray]) -> onnx.ModelProto:
        def infos(tensors: Iterable[Tensor], kind: int, batch: int | str) -> list[onnx.ValueInfoProto]:
            return [helper.make_tensor_value_info(t.name, kind, (batch, *t.shape)) for t in tensors]

        batch = "N" if self.batch is None else self.batch
        tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
        inputs = [*infos(self.inputs, kind, batch), *infos(self.ids, TensorProto.INT64, batch)]
        if "initializers listed as inputs" in self.quirks:
            inputs += [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in tensors]
        stale = infos(self.inner, kind, 1) if "stale shapes" in self.quirks and nodes is not self.nodes else []
        made = helper.make_graph(
            list(nodes), "random", inputs, infos(self.outputs, kind, batch), tensors, value_info=stale
        )
        ids = [helper.make_opsetid("", self.opset)]
        return helper.make_model(made, opset_imports=ids, ir_version=10 if self.opset > 20 else 8)


def _with_identities(nodes: list[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for index, node in enumerate(nodes):
        if node.input and index % 2:
            name = f"same_{index}"
            yield helper.make_node("Identity", [node.input[0]], [name])
            node.input[0] = name
        yield node


def _fed_by_layers(nodes: list[onnx.NodeProto]) -> set[str]:
    """Return the tensors that a layer has a part in: a model in which no output is one is refused."""
    fed: set[str] = set()
    for node in nodes:
        if node.op_type in ("Conv", "ConvTranspose", "Gemm", "MatMul") or fed & set(node.input):
            fed.update(node.output)
    return fed


def graphs() -> st.SearchStrategy[Graph]:
    """Return a strategy for graphs."""
    return st.randoms(use_true_random=False).map(draw)


def draw(random: Random) -> Graph:
    """Draw a graph."""
    opset = random.choice(OPSETS)
    images = [(random.choice((1, 3, 4)), random.randint(4, 7), random.randint(4, 7)) for _ in range(2)]
    shapes = [*images, (random.randint(2, 6), random.choice((5, 8))), (random.choice((7, 8)),)]
    inputs = [Tensor(f"x{i}", random.choice(shapes)) for i in range(random.choice((1, 1, 1, 2)))]
    ids = [Tensor("ids", (random.randint(2, 5),))] if random.random() < 0.15 else []
    making = Making(random, opset, list(inputs), random.choice(PATTERNS))
    for tensor in inputs:
        first_step(tensor)(making, tensor)
    for tensor in ids:
        width = random.choice((5, 8))
        table = making.constant("table", np.random.default_rng(random.randint(0, 2**31)).normal(size=(WORDS, width)))
        making.add("Gather", [table, tensor.name], (*tensor.shape, width), axis=0)
    for _ in range(random.randint(1, 7)):
        recent = making.tensors[-1] if random.random() < 0.75 else random.choice(making.tensors)
        random.choice(steps_for(recent))(making, recent)
    fed = _fed_by_layers(making.nodes)
    outputs = [next(tensor for tensor in reversed(making.tensors) if tensor.name in fed)]
    inner = [tensor for tensor in making.tensors[len(inputs) :] if tensor not in outputs]
    if inner and random.random() < 0.4:
        outputs.append(inner.pop(random.randrange(len(inner))))
    if random.random() < 0.15:  # an input, or an inner tensor, under another name
        source = random.choice(making.tensors)
        outputs.append(making.add("Identity", [source.name], source.shape))
    quirks = frozenset(quirk for quirk in QUIRKS if random.random() < 0.25)
    return Graph(
        opset,
        random.choice((None, None, SAMPLES)),
        tuple(making.nodes),
        tuple(inputs),
        tuple(ids),
        tuple(outputs),
        tuple(inner),
        making.weights,
        making.others,
        quirks,
        random.choice(("default", "default", "all", "mixed")),
        random.choice((1, 1, 1, 100, 2.0**-10)) if "FP16" not in quirks else 1,
        random.randint(0, 2**31),
    )
