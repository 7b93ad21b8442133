"""Findings: what is known to fail or to disappoint in TensorRT, where it is in a model, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import onnx_ir as ir

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One place in a model that breaks a rule.

    Attributes:
        rule: its id, "L07".
        severity: "error" where TensorRT refuses the model, or builds what is not the model; "warning" where it builds it, but
            in float, slower or less exact than was meant.
        where: the node or tensor, as "node 'conv1'", "node that makes 'y'" or "tensor 'x'".
        message: what is wrong there.
        fix: what to do.
        reports: public reports of it, "NVIDIA/TensorRT#1826"; "" where there is none.
    """

    rule: str
    severity: Severity
    where: str
    message: str
    fix: str
    reports: str

    def __str__(self) -> str:
        """Return the finding as one sentence for an error message or a log."""
        return f"{self.rule} {self.where}: {self.message}; {self.fix}"


@dataclass(frozen=True, slots=True)
class Rule:
    """What a finding has from its rule."""

    id: str
    severity: Severity
    fix: str
    reports: str = ""

    def at(self, where: str, message: str, fix: str = "") -> Finding:
        """Return a finding; `fix` replaces the rule's where one place needs other advice."""
        return Finding(self.id, self.severity, where, message, fix or self.fix, self.reports)


def place(node: ir.Node) -> str:
    """Return where a node is: its name, or what it makes."""
    return f"node '{node.name}'" if node.name else f"node that makes '{node.outputs[0].name}'"
