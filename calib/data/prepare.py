"""Declared preprocessing: from the fields of a sample to the inputs of a model, the same in calibration and in serving.

What a recipe declares is stored in the set's manifest, and a serving process reads it back:

    >>> import json
    >>> import numpy as np
    >>> recipe = {"channels": "bgr", "resize": {"height": 4, "width": 4}, "scale": 255.0, "layout": "CHW"}
    >>> declared = {"x": config.build(recipe, Preparation, "[prepare.x]")}
    >>> stored = json.dumps(Preparer.of(declared).record())

    >>> preparer = Preparer.load(json.loads(stored))
    >>> preparer.apply({"image": np.zeros((9, 7, 3), np.uint8)})["x"].shape
    (3, 4, 4)
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from calib import config
from calib.data.preparation import Preparation
from calib.data.source import Fields
from calib.errors import CalibError, ConfigError, DataError

__all__ = ["Preparation", "Preparer"]

Inputs = dict[str, npt.NDArray[np.generic]]
Function = Callable[[Fields], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Preparer:
    """The preparation of every model input; without any, fields are inputs.

    Attributes:
        inputs: by name.
        function: the user's instead, "path/file.py:attribute" or "package.module:attribute": fields of a sample -> inputs.
        function_sha256: of the file that holds it; what that file imports is not covered.
    """

    inputs: Mapping[str, Preparation]
    function: str = ""
    function_sha256: str = ""
    _call: Function | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, prepare: Mapping[str, Preparation], function: str = "", base: Path = Path()) -> Preparer:
        """Return what a recipe declares.

        Args:
            prepare: by model input.
            function: reference to the user's function; "" for none.
            base: folder of the recipe, which the function's path is relative to.

        Raises:
            ConfigError: both are given, or the function cannot be imported.
        """
        if not function:
            return cls(dict(prepare))
        if prepare:
            raise ConfigError(
                f"prepare_function = '{function}' makes every input: remove it, or the tables [prepare.*]"
            )
        digest, call = _resolve(function, base)
        return cls({}, function, digest, call)

    @classmethod
    def load(cls, record: Mapping[str, Any], base: Path = Path()) -> Preparer:
        """Return what `record` gave.

        Args:
            record: from a manifest, read as JSON.
            base: what the function's path is relative to.

        Raises:
            ConfigError: it is no such record, or the function cannot be imported.
            DataError: the function's file has changed.
        """
        if not isinstance(record, Mapping):
            raise ConfigError(f"the recorded preparation must be a table, not a {type(record).__name__}")
        stored = config.build(dict(record), _Record, "the recorded preparation")
        preparer = cls.of(stored.inputs, stored.function, base)
        if preparer.function_sha256 != stored.function_sha256:
            raise DataError(
                f"prepare_function '{stored.function}' has changed since it was recorded (sha256 "
                f"{stored.function_sha256[:12]}, now {preparer.function_sha256[:12]}): restore it, or build the set again"
            )
        return preparer

    def record(self) -> dict[str, Any]:
        """Return all that is declared, defaults filled in, as JSON can hold it."""
        return {
            "inputs": {name: _plain(dataclasses.asdict(preparation)) for name, preparation in self.inputs.items()},
            "function": self.function,
            "function_sha256": self.function_sha256,
        }

    @property
    def sha256(self) -> str:
        """Digest of the record."""
        return hashlib.sha256(json.dumps(self.record(), sort_keys=True).encode()).hexdigest()

    def apply(self, fields: Fields) -> Inputs:
        """Return a sample's inputs by name, without the batch dimension.

        Raises:
            DataError: the fields do not fit the declaration, or the user's function fails; the caller names the sample.
        """
        if self._call:
            return self._called(self._call, fields)
        result: Inputs = {}
        for name, preparation in self.inputs.items():
            try:
                result[name] = preparation.apply(fields)
            except DataError as error:
                raise DataError(f"input '{name}' {error}") from error
        return result if self.inputs else {name: np.asarray(array) for name, array in fields.items()}

    def _called(self, function: Function, fields: Fields) -> Inputs:
        try:
            returned = function(dict(fields))
        except CalibError:
            raise
        except Exception as error:  # the user's code may raise anything
            raise DataError(f"prepare_function '{self.function}' failed: {type(error).__name__}: {error}") from error
        if not isinstance(returned, Mapping) or not returned or not all(isinstance(name, str) for name in returned):
            raise DataError(
                f"prepare_function '{self.function}' gave a {type(returned).__name__}; return a dict, model input -> array"
            )
        result = {name: np.asarray(array) for name, array in returned.items()}
        for name, array in result.items():
            if array.dtype.kind not in "biuf":
                raise DataError(
                    f"prepare_function '{self.function}' gave input '{name}' as {array.dtype}, which is not a number's dtype"
                )
        return result


@dataclass(frozen=True, slots=True)
class _Record:
    inputs: dict[str, Preparation]
    function: str
    function_sha256: str


def _resolve(reference: str, base: Path) -> tuple[str, Function]:
    call = config.resolve(reference, base)
    if not callable(call):
        raise ConfigError(f"prepare_function '{reference}' is a {type(call).__name__}, not a function")
    location = reference.rpartition(":")[0]
    if location.endswith(".py"):
        code = config.code(reference, base)
    else:
        file = getattr(sys.modules[location], "__file__", None)
        if not file:
            raise ConfigError(
                f"prepare_function '{reference}': {location} has no file, so no change of it could be seen"
            )
        code = Path(file).read_bytes()
    return hashlib.sha256(code).hexdigest(), call


def _plain(value: Any) -> Any:
    """Return tables without what is not declared, tuples as lists."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
