"""DICOM pixels as a display would show them: one frame as float32 0..1, or as RGB.

No message here holds anything that the file's header says, not even through pydicom's errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

MAX_PIXELS = 100_000_000
"""Larger frames are refused before they are decoded."""

GRAY = ("MONOCHROME1", "MONOCHROME2")
COLOUR = ("RGB", "YBR_FULL", "YBR_FULL_422", "YBR_ICT", "YBR_RCT", "PALETTE COLOR")

Floats = npt.NDArray[np.float64]


class Refused(Exception):
    """Why a file or frame is not read; the text holds nothing that the header says."""


@dataclass(frozen=True, slots=True)
class Window:
    """The values that become 0..1: DICOM's LINEAR function of center and width."""

    center: float
    width: float


def pixels(stream: BinaryIO, frame: int, window: Window | int | None, syntax: str) -> npt.NDArray[np.generic]:
    """Return a frame of an open DICOM file: gray float32 [H, W] in 0..1, or colour uint8 [H, W, 3].

    Gray: stored values, then the modality LUT or rescale, then the window, then MONOCHROME1 inverted. The window is the
    given one, else the stored one of that number, else (None) the stored VOI LUT or first window, or where nothing is
    stored, and only up to 8 bits, all that the bits can hold. Values of a frame's own functional group go before the
    shared ones and the file's. Colour: palettes and YBR become RGB; of more than 8 bits the high 8 count. Overlays are
    not drawn.

    Args:
        stream: of the file.
        frame: from 0.
        window: as said above.
        syntax: name of the file's transfer syntax where it is compressed, for messages.

    Raises:
        Refused: the frame cannot be shown so.
        Exception: pydicom may raise anything on damaged data.
    """
    from pydicom.dataset import Dataset
    from pydicom.pixels.processing import apply_color_lut
    from pydicom.pixels.utils import pixel_array

    dataset = Dataset()
    groups = [0x52009229, 0x52009230]  # functional groups, shared and of each frame
    try:
        stored = pixel_array(stream, ds_out=dataset, specific_tags=groups, index=frame)
    except Exception as error:  # of damaged data, or of a plug-in that cannot do this kind
        hint = f", or of a kind of '{syntax}' that needs another plug-in (pip install pylibjpeg[all])" if syntax else ""
        raise Refused(
            f"has pixels that cannot be decoded ({type(error).__name__}): they are missing, truncated or damaged{hint}; "
            "repair, convert or remove it"
        ) from None
    photometric = str(dataset.get("PhotometricInterpretation", ""))
    if photometric in GRAY and stored.ndim == 2:
        shown = _shown(*_modality(stored, dataset, frame), dataset, frame, window)
        return np.asarray(1 - shown if photometric == "MONOCHROME1" else shown, np.float32)
    if photometric not in COLOUR:
        raise Refused(f"has a photometric interpretation other than {', '.join(GRAY + COLOUR)}; convert it")
    if photometric == "PALETTE COLOR":
        stored = apply_color_lut(stored, dataset)[..., :3]
        return (stored >> (8 * (stored.dtype.itemsize - 1))).astype(np.uint8)
    excess = int(dataset.get("BitsStored", 8)) - 8
    if stored.ndim != 3 or stored.shape[2] != 3 or excess < 0:
        raise Refused("is colour without three samples of 8 bits or more a pixel; convert it")
    return (stored >> excess).astype(np.uint8)


def _macro(dataset: Any, frame: int, keyword: str) -> Any:
    """Return where a frame's values of one kind stand: in its own group, in the shared one, or in the file itself."""
    for sequence, position in (("PerFrameFunctionalGroupsSequence", frame), ("SharedFunctionalGroupsSequence", 0)):
        items = dataset.get(sequence) or []
        if position < len(items) and items[position].get(keyword):
            return items[position].get(keyword)[0]
    return dataset


def _modality(stored: npt.NDArray[Any], dataset: Any, frame: int) -> tuple[Floats, tuple[float, float] | None]:
    """Return values in their own unit (HU), and the range of what up to 8 bits can hold, None where there are more."""
    if dataset.get("ModalityLUTSequence"):
        values, bits = _through_lut(stored, dataset.ModalityLUTSequence[0], _little(dataset))
        return values, None if bits > 8 else (0.0, 2.0**bits - 1)
    macro = _macro(dataset, frame, "PixelValueTransformationSequence")
    slope = float(1 if macro.get("RescaleSlope") is None else macro.RescaleSlope)
    intercept = float(macro.get("RescaleIntercept") or 0)
    if not (np.isfinite(slope) and np.isfinite(intercept) and slope):
        raise Refused("has a rescale slope that is 0, or rescale values that are no numbers; repair the header")
    values = stored.astype(np.float64) * slope + intercept
    bits = int(dataset.get("BitsStored", 32))  # floating-point pixels have none
    if bits > 8:
        return values, None
    lowest = -(2 ** (bits - 1)) if dataset.get("PixelRepresentation") else 0
    ends = sorted((lowest * slope + intercept, (lowest + 2**bits - 1) * slope + intercept))
    return values, (ends[0], ends[1])


def _shown(
    values: Floats, span: tuple[float, float] | None, dataset: Any, frame: int, window: Window | int | None
) -> npt.NDArray[np.floating[Any]]:
    if isinstance(window, Window):
        return _windowed(values, window.center, window.width, "LINEAR")
    macro = _macro(dataset, frame, "FrameVOILUTSequence")
    if window is None and macro.get("VOILUTSequence"):
        looked_up, bits = _through_lut(np.rint(values), macro.VOILUTSequence[0], _little(dataset))
        return np.clip(looked_up / (2.0**bits - 1), 0, 1)
    stored = list(zip(_numbers(macro.get("WindowCenter")), _numbers(macro.get("WindowWidth")), strict=False))
    if window is not None and window >= len(stored):
        raise Refused(f"stores {len(stored)} windows, and number {window} (from 0) is asked for; set another window")
    if stored:
        return _windowed(values, *stored[window or 0], str(macro.get("VOILUTFunction") or "LINEAR").upper())
    if span is None:
        raise Refused(
            "has more than 8 bits a pixel and stores no window to show them with; set window = [center, width]"
        )
    return np.clip((values - span[0]) / (span[1] - span[0]), 0, 1)


def _windowed(values: Floats, center: float, width: float, function: str) -> Floats:
    """PS3.3 C.11.2.1.2 and C.11.2.1.3, onto 0..1."""
    if not (np.isfinite(center) and np.isfinite(width) and width >= (1 if function == "LINEAR" else 1e-300)):
        raise Refused("stores a window that is no window (width below 1, or no number); set window = [center, width]")
    if function == "SIGMOID":
        with np.errstate(over="ignore"):
            return np.asarray(1 / (1 + np.exp(-4 * (values - center) / width)))
    if function == "LINEAR":
        center, width = center - 0.5, width - 1
    elif function != "LINEAR_EXACT":
        raise Refused(
            "stores a window function other than LINEAR, LINEAR_EXACT and SIGMOID; set window = [center, width]"
        )
    if width == 0:
        return (values > center).astype(np.float64)
    return np.clip((values - center) / width + 0.5, 0, 1)


def _through_lut(values: npt.NDArray[Any], item: Any, little: bool) -> tuple[Floats, int]:
    """Return values looked up in a DICOM table, and the table's bits; beyond its ends the end entries hold."""
    entries, first, bits = (int(number) for number in item.LUTDescriptor)
    entries = entries or 2**16
    data = item.LUTData
    if isinstance(data, bytes):  # entries of 8 bits may be packed
        data = np.frombuffer(data, "u1" if bits <= 8 and len(data) < 2 * entries else "<u2" if little else ">u2")
    table = np.atleast_1d(np.asarray(data)).astype(np.float64)[:entries]
    if not 8 <= bits <= 16 or len(table) < entries:
        raise Refused(
            "has a lookup table that is not as long or deep as it says; set window = [center, width], or repair it"
        )
    positions = np.clip(values.astype(np.int64) - first, 0, len(table) - 1)
    return table[positions], bits


def _little(dataset: Any) -> bool:
    return bool(dataset.file_meta.TransferSyntaxUID.is_little_endian)


def _numbers(value: Any) -> Sequence[float]:
    if value is None or value == "":
        return []
    return [float(number) for number in ([value] if isinstance(value, (str, float, int)) else value)]
