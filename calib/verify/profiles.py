"""Which optimization profile an engine is built for: what the user gives, else what the model says."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import onnx

from calib import profiles
from calib.errors import ConfigError, ModelError
from calib.profiles import METADATA_KEY, Profile


def parse(options: Iterable[str]) -> dict[str, Profile]:
    """Read "NAME=1x3x32,8x3x320,8x3x640" (min, opt, max), or "NAME=8x3x320" for one shape.

    Raises:
        ConfigError: an option is not of that form.
    """
    result: dict[str, Profile] = {}
    for option in options:
        name, _, text = option.rpartition("=")
        try:
            shapes = [tuple(int(size) for size in shape.split("x")) for shape in text.split(",")]
        except ValueError:
            shapes = []
        if not name or len(shapes) not in (1, 3):
            raise ConfigError(f"--shape '{option}' must be NAME=MIN,OPT,MAX or NAME=SHAPE with shapes as 8x3x48x320")
        result[name] = Profile(*(shapes * 3 if len(shapes) == 1 else shapes))
    return result


def choose(model: onnx.ModelProto, given: Mapping[str, Profile] | None) -> dict[str, Profile]:
    """Return the profile of each input with a dynamic shape: what is given, else what the model's metadata say.

    Raises:
        ConfigError: a given name is no input, a shape contradicts the model's, or an input has no shape at all.
        ModelError: the metadata are broken.
    """
    initializers = {tensor.name for tensor in model.graph.initializer}
    inputs = {value.name: _sizes(value) for value in model.graph.input if value.name not in initializers}
    recorded, given = _recorded(model), given or {}
    for name in given:
        if name not in inputs:
            raise ConfigError(f"--shape names '{name}', which is no input of the model; it has {', '.join(inputs)}")
    result = {}
    for name, sizes in inputs.items():
        profile = given.get(name, recorded.get(name))
        if profile is not None:
            _check(name, sizes, profile)
        if None not in sizes:
            continue
        if profile is None:
            shape = "x".join("?" if size is None else str(size) for size in sizes)
            raise ConfigError(
                f"input '{name}' has the dynamic shape {shape}: give the range to build for, "
                f"as --shape {name}=MIN,OPT,MAX with shapes such as {shape.replace('?', '8')}"
            )
        result[name] = profile
    return result


def _sizes(value: onnx.ValueInfoProto) -> tuple[int | None, ...]:
    return tuple(dim.dim_value if dim.dim_value > 0 else None for dim in value.type.tensor_type.shape.dim)


def _check(name: str, sizes: tuple[int | None, ...], profile: Profile) -> None:
    for shape in (profile.min, profile.opt, profile.max):
        fits = len(shape) == len(sizes) and all(size in (None, new) for size, new in zip(sizes, shape, strict=True))
        if not fits:
            own = "x".join("?" if size is None else str(size) for size in sizes)
            raise ConfigError(f"input '{name}' is {own or 'a scalar'} and the profile {profile} does not fit it")


def _recorded(model: onnx.ModelProto) -> dict[str, Profile]:
    text = next((entry.value for entry in model.metadata_props if entry.key == METADATA_KEY), "{}")
    try:
        return {str(name): profiles.read(entry) for name, entry in json.loads(text).items()}
    except (ConfigError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"the model's metadata '{METADATA_KEY}' are broken ({error}); quantize it again") from error
