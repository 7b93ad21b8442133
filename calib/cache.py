"""TensorRT's calibration cache (TensorRT <= 10): read and written as text.

The first line is a header such as "TRT-8601-EntropyCalibration2"; then a line a tensor, "name: hex", where hex is the
big-endian bit pattern of the float32 scale, amax / 127. Names may hold spaces, colons and brackets, as in
"(Unnamed Layer* 1) [Scale]_output", so that only the last ": " separates.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path

import numpy as np

from calib import files
from calib.errors import DataError
from calib.scales import Origin, Scales

_HEADER = re.compile(r"TRT-\d+-\w+")
_LINE = re.compile(r"(?P<tensor>.+): (?P<scale>[0-9a-f]{8})")
_IMPORTED = "tensorrt "
DEFAULT_HEADER = "TRT-8601-EntropyCalibration2"


def read(path: Path) -> Scales:
    """Read a calibration cache; a scale keeps its bits, and the header is kept as the calibrator.

    Raises:
        DataError: no such file, no header, a line of another form, a tensor twice, a scale that is not positive.
    """
    try:
        lines = path.read_bytes().decode("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read ({error})") from error
    if not _HEADER.fullmatch(lines[0]):
        raise DataError(f"{path}: line 1 must be a TensorRT header like {DEFAULT_HEADER}, not '{lines[0][:60]}'")
    scales: dict[str, np.float32] = {}
    for number, line in enumerate(lines[1:], start=2):
        if not line and number == len(lines):
            continue
        match = _LINE.fullmatch(line)
        if not match:
            raise DataError(f"{path}: line {number} must be 'tensor: 8 hex digits', not '{line[:60]}'")
        tensor = match["tensor"]
        if tensor in scales:
            raise DataError(f"{path}: line {number}: tensor '{tensor}' appears twice")
        scale = np.float32(struct.unpack(">f", bytes.fromhex(match["scale"]))[0])
        if not (np.isfinite(scale) and scale > 0):
            raise DataError(
                f"{path}: line {number}: the scale of '{tensor}' is {scale}; it must be positive and finite"
            )
        scales[tensor] = scale
    return Scales(scales, {}, Origin(f"{_IMPORTED}{lines[0]}"))


def write(scales: Scales, path: Path, header: str | None = None) -> None:
    """Write the activation scales as a calibration cache, in their order.

    Args:
        scales: weights are left out: TensorRT takes theirs from the model.
        path: file to write.
        header: of the cache; by default the imported one, else DEFAULT_HEADER. TensorRT reads a cache only when its
            version and calibrator are those of the header, and silently calibrates again otherwise.

    Raises:
        DataError: the header is not of TensorRT's form, or a tensor's name holds a line break.
    """
    imported = scales.origin.calibrator.removeprefix(_IMPORTED)
    known = imported if scales.origin.calibrator.startswith(_IMPORTED) else DEFAULT_HEADER
    header = header or known
    if not _HEADER.fullmatch(header):
        raise DataError(f"'{header}' is not a TensorRT header; it must look like {DEFAULT_HEADER}")
    lines = [header]
    for tensor, scale in scales.activations.items():
        if "\n" in tensor:
            raise DataError(f"tensor {tensor!r} holds a line break, which a calibration cache cannot")
        lines.append(f"{tensor}: {struct.pack('>f', scale).hex()}")
    files.write_text(path, "\n".join(lines) + "\n")
