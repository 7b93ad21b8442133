"""Proof of what TensorRT builds: precision asked for against precision built, per ONNX node."""

from calib.verify.profiles import parse
from calib.verify.result import Build, Layer, Verification, document, load, save
from calib.verify.run import verify

__all__ = [
    "Build",
    "Layer",
    "Verification",
    "document",
    "load",
    "parse",
    "save",
    "verify",
]
