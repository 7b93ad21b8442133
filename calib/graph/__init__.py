"""ONNX graphs: loaded safely, normalized, and read as layers."""
