"""Names that survive the build: every node is called calib_n0, calib_n1, ... while TensorRT has it.

ONNX allows any text as a name, none at all, and the same one twice; TensorRT joins names in brackets and replaces some
characters. With names of our own the way back is exact.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import onnx

_KEY = re.compile(r"calib_n\d+")


def rename(model: onnx.ModelProto) -> dict[str, str]:
    """Rename every node in place, those of subgraphs too, and return each key's label.

    A label is the node's own name, with the operator where it has none, and with a number where others have it too.
    """
    every = list(nodes(model.graph))
    wanted = [node.name or node.op_type for node in every]
    several = {name for name, count in Counter(wanted).items() if count > 1}
    labels: dict[str, str] = {}
    for index, (node, name) in enumerate(zip(every, wanted, strict=True)):
        key = f"calib_n{index}"
        labels[key] = f"{name} (node {index})" if name in several or not node.name else name
        node.name = key
    return labels


def keys(text: str) -> tuple[str, ...]:
    """Return the keys in a text of TensorRT, each once, in order."""
    return tuple(dict.fromkeys(_KEY.findall(text)))


def restore(text: str, labels: Mapping[str, str]) -> str:
    """Return a text of TensorRT with the model's own names."""
    return _KEY.sub(lambda match: labels.get(match[0], match[0]), text)


def nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield every node, those of subgraphs too."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            subgraphs: Iterable[onnx.GraphProto] = (attribute.g, *attribute.graphs)
            for subgraph in subgraphs:
                yield from nodes(subgraph)
