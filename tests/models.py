"""Small models written in ONNX's text form, with their weights as arrays."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from calib import observe, qdq
from calib.data.batch import Batch, InputSpec
from calib.graph import layers, normalize
from calib.plan import Plan
from calib.qdq import Form, Quantized
from calib.runtime import ort
from calib.scales import Origin, Scales, scale_of

DRAWS = np.random.default_rng(0)


def weight(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 1 / np.sqrt(np.prod(shape[1:])), shape).astype(np.float32)


def parse(text: str, opset: int = 19, **weights: np.ndarray) -> ir.Model:
    """Return a normalized model of "graph (inputs) => (outputs) { nodes }", its nodes named after their first output."""
    proto = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]> {text}')
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    for node in proto.graph.node:
        node.name = node.name or node.output[0]
    onnx.checker.check_model(proto)
    return normalize.normalize(ir.from_proto(proto)).model


class Memory:
    """Samples that lie in memory: one batch, a sample a row of the largest input."""

    def __init__(self, feeds: Mapping[str, np.ndarray]) -> None:
        self.feeds, self.where, self.sha256 = dict(feeds), "memory", "memory"
        self.count = max(len(array) for array in feeds.values() if array.ndim)

    def __len__(self) -> int:
        return self.count

    @property
    def blocks(self) -> list[int]:
        return [0] * len(self)

    def batches(self, size: int, specs: Mapping[str, InputSpec] | None = None) -> Sequence[Batch]:
        return [Batch(self.feeds, tuple(f"sample-{i}" for i in range(self.count)), tuple(range(self.count)))]


def scales_for(model: ir.Model, feeds: Mapping[str, np.ndarray], plan: Plan) -> Scales:
    """Return max scales and all ranges, seen on one batch."""
    placement = qdq.place(model, plan)
    seen = observe.observe(model, Memory(feeds), placement.tensors, qdq.unranged(model), batch_size=1)
    amax = qdq.unify({t: item.histogram.amax for t, item in seen.tensors.items()}, placement.shared)
    activations = {tensor: scale_of(value) for tensor, value in amax.items()}
    weights = layers.weight_scales(model, placement.int8)
    return Scales(activations, weights, Origin("test"), seen.ranges, seen.profile)


def quantized(
    model: ir.Model, feeds: Mapping[str, np.ndarray], plan: Plan | None = None, form: Form | None = None
) -> Quantized:
    plan = plan or Plan()
    return qdq.quantize(model, plan, scales_for(model, feeds, plan), form or Form())


def run(model: ir.Model, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    with ort.in_memory(model) as runner:
        return runner.run(feeds)


def node(model: ir.Model, name: str) -> ir.Node:
    return next(node for node in model.graph if node.name == name)
