"""The environment: what may decide a number is in the run's identity, the rest is recorded beside it."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

_DECIDING = ("calib", "numba", "numpy", "onnx", "onnx-ir", "onnxruntime", "rapidfuzz")
_RECORDED = ("datasets", "matplotlib", "mlflow", "pydicom", "scikit-learn", "scipy")


def deciding_versions() -> dict[str, str]:
    """Return the versions of the packages that scales and scores depend on."""
    return {name: metadata.version(name) for name in _DECIDING}


def describe() -> dict[str, str]:
    """Return versions, processor and operating system, for people."""
    recorded = {name: version for name in _RECORDED if (version := _version(name))}
    machine = {"processor": _processor(), "cores": str(os.cpu_count()), "system": platform.platform()}
    return {"python": platform.python_version(), **deciding_versions(), **recorded, **machine}


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
