"""What a pass says of its work."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir


@dataclass
class Said(ir.passes.PassResult):
    """A pass's result, with one sentence about what it changed; empty where it changed nothing."""

    sentence: str


def count(model: ir.Model, number: int, what: str) -> Said:
    """Return the result of a pass that changed a number of things."""
    return Said(model, number > 0, f"{number} {what}" if number > 0 else "")
