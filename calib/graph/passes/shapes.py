"""Types and shapes of inner tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import onnx
import onnx_ir as ir

from calib.errors import ModelError
from calib.graph import load
from calib.graph.passes.bare import ERRORS, bare
from calib.graph.passes.said import Said, count


class InferShapes(ir.passes.InPlacePass):
    """Infers the types and shapes of inner tensors anew.

    What the file says may be missing, or stale: tools change a graph and leave it. Passes and rules go by ranks and
    types, so these come from what defines them: inputs, weights and operators.

    1. All that the file says of inner tensors is dropped, except of what no operator of onnx makes, and inferred.
    2. What inference cannot give comes from the file: the type always, the shape if nothing inferred contradicts any
       shape in the file. (A shape behind a Reshape by a computed shape is known to the exporter alone.)
    3. Inputs and outputs keep what the file says, and only it gives names to unknown sizes.

    onnx-ir's ShapeInferencePass takes a sequence for a tensor, and writes into the types of outputs.
    """

    def call(self, model: ir.Model) -> Said:
        """Infer them; names must be unique.

        Raises:
            ModelError: the model is not valid.
        """
        for value in model.graph.initializers.values():
            if value.const_value is not None and not value.is_graph_input():
                value.type = ir.TensorType(value.const_value.dtype)
                value.shape = ir.Shape(value.const_value.shape.numpy())
        stated = {str(value.name): _Stated(value.type, value.shape) for value in _inner(model)}
        for value in _inner(model):
            node = value.producer()
            if node is not None and node.domain == "":
                value.type = value.shape = None
        found = _inferred(model, _symbols(model, stated.values()))
        trusted = not any(_contradict(found.get(name, _UNKNOWN).shape, old.shape) for name, old in stated.items())
        changed = 0
        for value in _inner(model):
            old, new = stated[str(value.name)], found.get(str(value.name), _UNKNOWN)
            value.type = new.type if new.type is not None else old.type
            value.shape = _merged(new.shape, old.shape if trusted else None)
            gained = (value.type, value.shape is None) != (old.type, old.shape is None)
            changed += gained or _contradict(value.shape, old.shape)
        return count(model, changed, "tensors whose type or shape was missing or wrong got the inferred one")


@dataclass(frozen=True, slots=True)
class _Stated:
    """What the file, or inference, says of a tensor."""

    type: ir.TypeProtocol | None
    shape: ir.Shape | None


_UNKNOWN = _Stated(None, None)


def _inferred(model: ir.Model, symbols: set[str | None]) -> dict[str, _Stated]:
    try:
        proto = onnx.shape_inference.infer_shapes(bare(model)[0], data_prop=True)
    except ERRORS as error:
        raise ModelError(f"the model is not valid ({' '.join(str(error).split())}); export it again") from error
    return {
        info.name: _Stated(
            ir.serde.deserialize_type_proto_for_type(info.type),
            _without_invented(ir.serde.deserialize_type_proto_for_shape(info.type), symbols),
        )
        for info in _value_infos(proto.graph)
        if info.HasField("type")
    }


def _value_infos(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    yield from graph.value_info
    yield from graph.output
    for attribute in (attribute for node in graph.node for attribute in node.attribute):
        for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            yield from _value_infos(inner)


def _inner(model: ir.Model) -> Iterator[ir.Value]:
    """Yield what nodes make, but for the main graph's outputs."""
    outputs = set(model.graph.outputs)
    for node in load.all_nodes(model):
        yield from (value for value in node.outputs if value.name and value not in outputs)


def _symbols(model: ir.Model, stated: Iterable[_Stated]) -> set[str | None]:
    """Return the names of sizes that the file knows."""
    shapes = [one.shape for one in stated] + [value.shape for value in (*model.graph.inputs, *model.graph.outputs)]
    return {size.value for shape in shapes if shape is not None for size in shape if not isinstance(size, int)}


def _without_invented(shape: ir.Shape | None, symbols: set[str | None]) -> ir.Shape | None:
    """Drop the names that inference gives to sizes: the next inference may give them to others."""
    if shape is None:
        return None
    return ir.Shape([size if isinstance(size, int) or size.value in symbols else None for size in shape])


def _contradict(found: ir.Shape | None, stated: ir.Shape | None) -> bool:
    """Whether two shapes differ in rank or in a size; a size that is free, as an input's batch, is no fixed one."""
    if found is None or stated is None:
        return False
    if len(found) != len(stated):
        return True
    pairs = zip(found, stated, strict=True)
    return any(isinstance(old, int) and size != old and _is_known(size) and _is_known(old) for size, old in pairs)


def _is_known(size: int | ir.SymbolicDim) -> bool:
    return size >= 0 if isinstance(size, int) else size.value is not None  # some write -1 for a free size


def _merged(found: ir.Shape | None, stated: ir.Shape | None) -> ir.Shape | None:
    """Return a shape with the sizes that either knows, of `found` first."""
    if found is None or stated is None:
        return stated if found is None else _merged(found, found)
    pairs = zip(found, stated, strict=True)
    return ir.Shape([next((one for one in pair if _is_known(one)), None) for pair in pairs])
