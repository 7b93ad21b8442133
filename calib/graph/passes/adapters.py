"""Operators whose meaning changed between opsets and that onnx's own adapters get wrong, or wrap needlessly."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from calib.errors import ModelError
from calib.graph import load
from calib.graph.names import Unique, initializer
from calib.graph.passes.shapes import InferShapes

_HIDDEN = "calib.hidden"
"""Domain of nodes that onnx's converter must leave alone."""

_SOFTMAX = ("Softmax", "LogSoftmax", "Hardmax")


def hide(model: ir.Model, opset: int) -> None:
    """Hide what onnx's converter gets wrong, in place, rewritten where that needs nothing but the node.

    1. Softmax, LogSoftmax and Hardmax below 13 flatten all axes from `axis` on into one. onnx wraps whatever is not known
       to be along the last axis, and gives Hardmax another axis. `reveal` rewrites them.
    2. Resize below 11, and Upsample, map an element to `x / scale`; onnx writes a Resize that maps it otherwise. Nearest
       is the lower neighbour when it enlarges and, as ONNX Runtime has it, the upper when it shrinks.
    3. PRelu below 7 has a slope for each channel where onnx takes it for one for each element of the last axis.
    4. Resize below 13 could round as TensorFlow does; onnx leaves that as it is, and 13 does not have it.
    """
    names = Unique(model)
    model.opset_imports[_HIDDEN] = 1  # without which onnx infers nothing
    for node in (node for node in load.all_nodes(model) if node.domain == ""):
        if node.op_type in _SOFTMAX and opset < 13:
            node.attributes["axis"] = ir.AttrInt64("axis", node.attributes.get_int("axis", 1))
            node.domain = _HIDDEN
        elif (node.op_type == "Upsample" and opset < 10) or (node.op_type == "Resize" and opset < 11):
            _add_modes(model, node, names)
            node.domain = _HIDDEN
        elif node.op_type == "PRelu" and opset < 7:
            _align_slope(model, node, names)
        elif node.op_type == "Resize" and opset < 13:
            _round_half_up(node)


def reveal(model: ir.Model) -> None:
    """Give hidden nodes of a converted model their domain back.

    Where at most one of the axes that a Softmax flattened has more than one element, it is that axis' Softmax, and stays
    one node, which TensorRT fuses; else the Flatten and the Reshape are written out. Inference knows more ranks in the
    new opset.
    """
    del model.opset_imports[_HIDDEN]
    hidden = [node for node in load.all_nodes(model) if node.domain == _HIDDEN]
    for node in hidden:
        node.domain = ""
    softmaxes = [node for node in hidden if node.op_type in _SOFTMAX]
    if softmaxes:
        InferShapes()(model)
        names = Unique(model)
        for node in softmaxes:
            axis = node.attributes.get_int("axis", 1)
            same = _same_axis(_source(node).shape, axis)
            if same is None:
                _flatten_around(node, axis, names)
            node.attributes["axis"] = ir.AttrInt64("axis", -1 if same is None else same)


def _same_axis(shape: ir.Shape | None, axis: int) -> int | None:
    """Return the one axis that a Softmax is along, which flattens those from `axis` on; None if it is along several."""
    if axis == -1:
        return axis
    if shape is None:
        return None
    flattened = range(axis % len(shape) if axis < 0 else axis, len(shape))
    counting = [index for index in flattened if shape[index] != 1]
    return (counting or [*flattened])[0] if flattened and len(counting) <= 1 else None


def _flatten_around(node: ir.Node, axis: int, names: Unique) -> None:
    source, graph, made = _source(node), node.graph, node.outputs[0]
    assert graph is not None  # the node is in one
    shape = ir.Node("", "Shape", [source], name=names.take_node(f"{node.name}_shape"))
    flat = ir.Node("", "Flatten", [source], [ir.AttrInt64("axis", axis)], name=names.take_node(f"{node.name}_flatten"))
    back = ir.Node("", "Reshape", [None, shape.outputs[0]], name=names.take_node(f"{node.name}_reshape"))
    shape.outputs[0].name, flat.outputs[0].name = names.take(f"{made.name}_shape"), names.take(f"{made.name}_input")
    result = back.outputs[0]
    result.name, result.type, result.shape = made.name, made.type, made.shape
    made.name, made.shape = names.take(f"{made.name}_flat"), None
    ir.convenience.replace_all_uses_with(made, result, replace_graph_outputs=True)
    back.replace_input_with(0, made)
    node.replace_input_with(0, flat.outputs[0])
    graph.insert_before(node, [shape, flat])
    graph.insert_after(node, back)


def _add_modes(model: ir.Model, node: ir.Node, names: Unique) -> None:
    scales = node.inputs[1] if len(node.inputs) > 1 else _scales_attribute(model, node, names)
    mode = node.attributes.get_string("mode", "nearest").removeprefix("bi")
    nearest = "ceil" if _shrinks(scales) else "floor"
    strings = {"mode": mode, "coordinate_transformation_mode": "asymmetric", "nearest_mode": nearest}
    node.op_type = "Resize"
    node.resize_inputs(3)
    node.replace_input_with(1, None)
    node.replace_input_with(2, scales)
    node.attributes.clear()
    node.attributes.update({key: ir.AttrString(key, value) for key, value in strings.items()})


def _scales_attribute(model: ir.Model, node: ir.Node, names: Unique) -> ir.Value:
    attributes = node.attributes
    both = [attributes.get_float(f"{side}_scale", 1.0) for side in ("height", "width")]
    scales = attributes.get_floats("scales", (1.0, 1.0, *both))
    return initializer(model.graph, names.take(f"{node.outputs[0].name}_scales"), np.array(scales, np.float32))


def _shrinks(scales: ir.Value | None) -> bool:
    known = scales.const_value if scales is not None else None
    return known is not None and bool((known.numpy() <= 1).all())


def _align_slope(model: ir.Model, node: ir.Node, names: Unique) -> None:
    slope, shape = node.inputs[1], _source(node).shape
    values = slope.const_value if slope is not None else None
    if values is None or shape is None:
        raise ModelError(
            f"PRelu (node '{node.name}') has a computed slope, or an input of unknown rank, in an opset below 7"
        )
    if values.size > 1:
        aligned = values.numpy().reshape(-1, *(1 for _ in range(len(shape) - 2)))
        node.replace_input_with(1, initializer(model.graph, names.take(f"{node.name}_slope"), aligned))


def _round_half_up(node: ir.Node) -> None:
    """Write floor((i + 0.5) / scale), which opset 13 dropped, as (i + 0.5) / scale - 0.5 rounded half up."""
    modes = [node.attributes.get_string(key, "") for key in ("coordinate_transformation_mode", "nearest_mode")]
    if modes == ["tf_half_pixel_for_nn", "floor"]:
        for key, value in (("coordinate_transformation_mode", "half_pixel"), ("nearest_mode", "round_prefer_ceil")):
            node.attributes[key] = ir.AttrString(key, value)


def _source(node: ir.Node) -> ir.Value:
    assert node.inputs[0] is not None  # no operator here goes without its first input
    return node.inputs[0]
