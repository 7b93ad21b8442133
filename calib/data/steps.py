"""The steps of declared preprocessing, as functions of one array. An image is [H, W] or [H, W, channels]."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from PIL import Image

from calib.errors import DataError

Array = npt.NDArray[Any]
Rounding = Literal["nearest", "up", "down"]
Filter = Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"]

MAX_PIXELS = 100_000_000
"""A resized image may not be larger: a wide strip of one row must not become gigabytes."""

_LUMA = np.array([0.299, 0.587, 0.114])


def channels(image: Array, wanted: Literal["rgb", "bgr", "gray"]) -> Array:
    """Return an RGB or gray image with the channels asked for; gray by ITU-R 601-2 luma, as Pillow's "L"."""
    if image.ndim == 3 and image.shape[2] == 1:
        image = image[..., 0]
    if image.ndim == 3 and image.shape[2] != 3:
        raise DataError(f"has {image.shape[2]} channels and channels = '{wanted}' needs 3 or 1")
    if wanted == "gray":
        if image.ndim == 2:
            return image
        if image.dtype == np.uint8:
            return np.asarray(Image.fromarray(np.ascontiguousarray(image)).convert("L"))
        luma = image @ _LUMA
        return np.asarray(np.rint(luma) if image.dtype.kind in "iu" else luma, image.dtype)
    if image.ndim == 2:
        return np.repeat(image[..., None], 3, axis=2)
    return image[..., ::-1] if wanted == "bgr" else image


def resize(image: Array, height: int, width: int, kind: Filter) -> Array:
    """Resize with Pillow: 8 bits as they are, anything else channel by channel in float32."""
    if height * width > MAX_PIXELS:
        raise DataError(f"would be resized to {height} x {width}, above {MAX_PIXELS:,} pixels; set resize.maximum")
    if image.shape[:2] == (height, width):
        return image
    chosen = Image.Resampling[kind.upper()]
    if image.dtype == np.uint8 and (image.ndim == 2 or image.shape[2] == 3):
        return np.asarray(Image.fromarray(np.ascontiguousarray(image)).resize((width, height), chosen))
    planes = image.reshape(*image.shape[:2], -1).astype(np.float32)
    resized: list[Array] = [
        np.asarray(Image.fromarray(np.ascontiguousarray(planes[..., i])).resize((width, height), chosen))
        for i in range(planes.shape[2])
    ]
    result: Array = np.stack(resized, axis=2).reshape(height, width, *image.shape[2:])
    if image.dtype.kind not in "iu":
        return np.asarray(result, image.dtype)
    limits = np.iinfo(image.dtype)
    return np.clip(np.rint(result), limits.min, limits.max).astype(image.dtype)


def scaled(size: int, numerator: int, denominator: int, rounding: Rounding, multiple: int = 1) -> int:
    """Return size * numerator / denominator, rounded to a multiple, and that multiple at least."""
    top, bottom = size * numerator, denominator * multiple
    whole, rest = divmod(top, bottom)
    up = {"nearest": 2 * rest > bottom or (2 * rest == bottom and whole % 2 == 1), "up": rest > 0, "down": False}
    return max(whole + up[rounding], 1) * multiple


def crop(image: Array, height: int, width: int, where: Literal["center", "top-left"]) -> Array:
    """Cut out height x width; an odd rest of the centre leaves more below and right."""
    have = image.shape[:2]
    if have[0] < height or have[1] < width:
        raise DataError(f"is {have[0]} x {have[1]}, smaller than crop's {height} x {width}; resize it first")
    top, left = ((have[0] - height) // 2, (have[1] - width) // 2) if where == "center" else (0, 0)
    return image[top : top + height, left : left + width]


def pad(image: Array, height: int, width: int, where: Literal["bottom-right", "around"], value: Array) -> Array:
    """Lay an image on a canvas of height x width that `value`, a number or one a channel, fills."""
    have = image.shape[:2]
    if have[0] > height or have[1] > width:
        raise DataError(f"is {have[0]} x {have[1]}, larger than pad's {height} x {width}; resize or crop it first")
    if value.ndim and (image.ndim != 3 or value.shape[0] != image.shape[2]):
        raise DataError(
            f"has shape {list(image.shape)} and pad.value {value.shape[0]} numbers; give one a channel, or one"
        )
    canvas = np.empty((height, width, *image.shape[2:]), image.dtype)
    canvas[...] = cast(value, image.dtype, "pad.value")
    top, left = ((height - have[0]) // 2, (width - have[1]) // 2) if where == "around" else (0, 0)
    canvas[top : top + have[0], left : left + have[1]] = image
    return canvas


def length(array: Array, size: int, keep: Literal["start", "center", "end"], value: float) -> Array:
    """Crop or pad the last axis to `size`; the part to keep stays where it is, the other end is cut or padded."""
    have = array.shape[-1]
    offset = {"start": 0, "center": abs(have - size) // 2, "end": abs(have - size)}[keep]
    if have >= size:
        return array[..., offset : offset + size]
    result = np.empty((*array.shape[:-1], size), array.dtype)
    result[...] = cast(np.asarray(value), array.dtype, "length.value")
    result[..., offset : offset + have] = array
    return result


def cast(array: Array, dtype: np.dtype[Any], what: str = "it") -> Array:
    """Convert; an integer type refuses what it cannot hold exactly, a float type what becomes infinite.

    Raises:
        DataError: values would be lost.
    """
    if array.dtype == dtype:
        return array
    with np.errstate(all="ignore"):
        result = array.astype(dtype)
    if dtype.kind in "iub":
        # The range first: a value outside of it may come back by luck.
        low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        inside = (array >= low) & (array <= high)
        if not (inside.all() and np.array_equal(result.astype(array.dtype), array)):
            raise DataError(f"cannot be {dtype} without loss: {what} holds fractions, NaN or values outside its range")
    elif not np.array_equal(np.isfinite(array), np.isfinite(result)):
        raise DataError(f"cannot be {dtype}: {what} holds values above {np.finfo(dtype).max:.4g}")
    return result
