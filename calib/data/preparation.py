"""What a recipe may declare of preprocessing, [prepare.INPUT], and how it is done: one fixed order of steps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from calib.data import steps
from calib.data.source import Fields
from calib.errors import ConfigError, DataError

# fmt: off
Dtype = Literal[
    "", "float32", "float16", "float64", "bool",
    "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
]
# fmt: on


@dataclass(frozen=True, slots=True)
class Resize:
    """Size of an image; every computed side is rounded.

    Attributes:
        height: in pixels; with one of height and width, the other follows the aspect ratio.
        width: in pixels.
        fit: with both, "stretch" gives exactly this size; keeping the aspect ratio, "shortest" covers it (crop follows)
            and "longest" fits within it (pad follows).
        filter: Pillow's, all of which average when they make smaller, except "nearest".
        rounding: of a computed side; a half goes to the even number.
        multiple: computed sides are multiples of it, and at least one.
        maximum: of the side that follows; a longer one is squeezed to it. 0 for none.
    """

    height: int = 0
    width: int = 0
    fit: Literal["stretch", "shortest", "longest"] = "stretch"
    filter: steps.Filter = "bilinear"
    rounding: steps.Rounding = "nearest"
    multiple: int = 1
    maximum: int = 0

    def __post_init__(self) -> None:
        """Check what goes together."""
        _check_sizes(self, "height", "width", "maximum")
        both = bool(self.height and self.width)
        if not (self.height or self.width):
            raise ConfigError("height or width is missing")
        if self.fit != "stretch" and not both:
            raise ConfigError(f"fit = '{self.fit}' needs height and width")
        if self.multiple < 1 or (self.multiple > 1 and both and self.fit == "stretch"):
            raise ConfigError(
                "multiple must be at least 1, and has no meaning where fit = 'stretch' gets height and width"
            )
        if self.maximum and both:
            raise ConfigError("maximum is of the side that follows the other: leave height or width out")

    def size(self, height: int, width: int) -> tuple[int, int]:
        """Return the size that an image of this size gets."""
        if self.height and self.width and self.fit == "stretch":
            return self.height, self.width
        if self.height and self.width:
            taller = self.height * width - self.width * height
            by_height = taller >= 0 if self.fit == "shortest" else taller <= 0
        else:
            by_height = bool(self.height)
        top, bottom = (self.height, height) if by_height else (self.width, width)
        sides = [steps.scaled(side, top, bottom, self.rounding, self.multiple) for side in (height, width)]
        if not (self.height and self.width):
            sides[0 if by_height else 1] = top
            if self.maximum:
                sides[1 if by_height else 0] = min(sides[1 if by_height else 0], self.maximum)
        return sides[0], sides[1]


@dataclass(frozen=True, slots=True)
class Crop:
    """Part of an image that stays; a side of 0 stays whole, and a smaller image is an error."""

    height: int = 0
    width: int = 0
    where: Literal["center", "top-left"] = "center"

    def __post_init__(self) -> None:
        """Check the sizes."""
        _check_sizes(self, "height", "width")
        if not (self.height or self.width):
            raise ConfigError("height or width is missing")


@dataclass(frozen=True, slots=True)
class Pad:
    """Canvas that an image is laid on; a larger image is an error.

    Attributes:
        height: in pixels; 0 leaves it.
        width: in pixels; 0 leaves it.
        multiple: sides that are not given grow to a multiple of it.
        value: what fills: one number, or one a channel.
        normalized: whether `value` is in the units after scale, mean and std; otherwise it goes through them as a pixel.
        where: the side that is filled.
    """

    height: int = 0
    width: int = 0
    multiple: int = 1
    value: tuple[float, ...] = (0.0,)
    normalized: bool = False
    where: Literal["bottom-right", "around"] = "bottom-right"

    def __post_init__(self) -> None:
        """Check the sizes and the value."""
        _check_sizes(self, "height", "width")
        if self.multiple < 1 or not (self.height or self.width or self.multiple > 1):
            raise ConfigError("height, width or multiple is missing; they are at least 1")
        _check_numbers("value", self.value)
        if not self.value:
            raise ConfigError("value must be one number, or one a channel")


@dataclass(frozen=True, slots=True)
class Length:
    """Size of the last axis of a signal or a text: a longer one is cut, a shorter one filled with `value`.

    Attributes:
        size: of the axis.
        keep: the part of the array that stays: "start" cuts and fills at the end.
        value: what fills.
    """

    size: int
    keep: Literal["start", "center", "end"] = "start"
    value: float = 0.0

    def __post_init__(self) -> None:
        """Check the size."""
        if self.size < 1:
            raise ConfigError(f"size must be at least 1, not {self.size}")
        _check_numbers("value", (self.value,))


@dataclass(frozen=True, slots=True)
class Preparation:
    """How one model input is made of one field: the table [prepare.INPUT] of a recipe.

    The steps that are declared are taken in this order, whatever their order in the file: channels, resize, crop,
    length, clip, (value / scale - mean) / std, pad, layout, dtype. The first three, pad and layout take images,
    [H, W] or [H, W, channels]; sources give RGB. Clip, scale, mean and std compute in float32, in float64 where the field
    has 32-bit integers or more.

    Attributes:
        field: of the sample; "" is its only one.
        channels: "" leaves them; gray is [H, W], and made of RGB by ITU-R 601-2 luma.
        resize: size of the image.
        crop: what stays of the image.
        length: size of the last axis.
        clip: lowest and highest value, in the field's units.
        scale: what values are divided by.
        mean: what is subtracted then: one number, or one for each place along `axis` (after channels: for BGR in BGR's order).
        std: what is divided by then, as `mean`.
        axis: of mean and std; the last is an image's channels.
        pad: canvas that the image is laid on.
        layout: "CHW" or "HWC", which gives gray an axis of 1; "" leaves [H, W] or [H, W, channels].
        dtype: an integer type refuses to lose anything; "" is float32 where anything was computed, else the field's own.
    """

    field: str = ""
    channels: Literal["", "rgb", "bgr", "gray"] = ""
    resize: Resize | None = None
    crop: Crop | None = None
    length: Length | None = None
    clip: tuple[float, ...] = ()
    scale: float = 1.0
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    axis: int = -1
    pad: Pad | None = None
    layout: Literal["", "CHW", "HWC"] = ""
    dtype: Dtype = ""

    def __post_init__(self) -> None:
        """Check what goes together."""
        for name in ("clip", "mean", "std"):
            _check_numbers(name, getattr(self, name))
        if self.clip and (len(self.clip) != 2 or self.clip[0] >= self.clip[1]):
            raise ConfigError(f"clip must be [lowest, highest], not {list(self.clip)}")
        if not (math.isfinite(self.scale) and self.scale > 0):
            raise ConfigError(f"scale must be above 0, not {self.scale}")
        if any(value <= 0 for value in self.std):
            raise ConfigError(f"std must be above 0, not {list(self.std)}")
        lengths = {len(self.mean), len(self.std)} - {0, 1}
        if len(lengths) > 1 or (self.channels and lengths - {1 if self.channels == "gray" else 3}):
            raise ConfigError(f"mean has {len(self.mean)} and std {len(self.std)} numbers; give one, or one a channel")
        if self.pad and self.axis not in (-1, 2):
            raise ConfigError(f"axis = {self.axis} has no meaning with pad: an image's channels are its last axis")

    def apply(self, fields: Fields) -> npt.NDArray[np.generic]:
        """Return the model input of a sample.

        Raises:
            DataError: the sample has no such field, or it does not fit the declaration.
        """
        array = self._field(fields)
        if self.channels or self.resize or self.crop or self.pad or self.layout:
            _check_image(array)
        if self.channels:
            array = steps.channels(array, self.channels)
        if self.resize:
            array = steps.resize(array, *self.resize.size(*array.shape[:2]), self.resize.filter)
        if self.crop:
            size = self.crop.height or array.shape[0], self.crop.width or array.shape[1]
            array = steps.crop(array, *size, self.crop.where)
        if self.length:
            if array.ndim == 0:
                raise DataError("is a single number and length needs an axis")
            array = steps.length(array, self.length.size, self.length.keep, self.length.value)
        computed = bool(self.clip or self.mean or self.std or self.scale != 1)
        if computed:
            array = self._compute(array, np.result_type(array.dtype, np.float32))
        if self.pad:
            array = self._pad(array, computed)
        if self.layout:
            array = array[..., None] if array.ndim == 2 else array
            array = array.transpose(2, 0, 1) if self.layout == "CHW" else array
        dtype = self.dtype or ("float32" if computed else "")
        return np.ascontiguousarray(steps.cast(array, np.dtype(dtype)) if dtype else array).reshape(array.shape)

    def _field(self, fields: Fields) -> npt.NDArray[Any]:
        if not self.field and len(fields) != 1:
            raise DataError(f"can be made of any of {', '.join(map(repr, fields))}; name one with field = ")
        name = self.field or next(iter(fields))
        if name not in fields:
            raise DataError(f"needs the field '{name}', and the sample has {', '.join(map(repr, fields))}")
        return np.asarray(fields[name])

    def _compute(self, array: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Clip, scale and normalize; a pad's value goes through here too."""
        array = array.astype(dtype)
        if self.clip:
            array = np.clip(array, *np.asarray(self.clip, dtype))
        if self.scale != 1:
            array = array / dtype.type(self.scale)
        for values, operation in ((self.mean, np.subtract), (self.std, np.divide)):
            if values:
                array = operation(array, _along(np.asarray(values, dtype), array, self.axis))
        return array

    def _pad(self, image: npt.NDArray[Any], computed: bool) -> npt.NDArray[Any]:
        assert self.pad
        value = np.asarray(self.pad.value, np.float64)
        channels = image.shape[2] if image.ndim == 3 else 1
        if value.size not in (1, channels):
            raise DataError(f"has {channels} channels and pad.value {value.size} numbers; give one, or one a channel")
        if computed and not self.pad.normalized:
            value = self._compute(np.broadcast_to(value, (1, 1, channels)), image.dtype)[0, 0]
        value = value[0] if image.ndim == 2 or value.size == 1 else value
        size = self.pad.height, self.pad.width
        height, width = (
            wanted or -(-have // self.pad.multiple) * self.pad.multiple
            for wanted, have in zip(size, image.shape[:2], strict=True)
        )
        return steps.pad(image, height, width, self.pad.where, value)


def _check_image(array: npt.NDArray[Any]) -> None:
    if array.ndim not in (2, 3) or not array.size or array.dtype.kind not in "uif":
        raise DataError(f"is {array.dtype} {list(array.shape)}, not an image of numbers, [H, W] or [H, W, channels]")


def _along(values: npt.NDArray[Any], array: npt.NDArray[Any], axis: int) -> npt.NDArray[Any]:
    if values.size == 1:
        return values.reshape(())
    if not -array.ndim <= axis < array.ndim or array.shape[axis] != values.size:
        raise DataError(f"has shape {list(array.shape)}, and mean or std {values.size} numbers along axis {axis}")
    shape = [1] * array.ndim
    shape[axis] = values.size
    return values.reshape(shape)


def _check_sizes(owner: Any, *names: str) -> None:
    for name in names:
        if getattr(owner, name) < 0:
            raise ConfigError(f"{name} must be at least 1, not {getattr(owner, name)}")


def _check_numbers(name: str, values: tuple[float, ...]) -> None:
    if not all(math.isfinite(value) for value in values):
        raise ConfigError(f"{name} must be finite, not {list(values)}")
