"""The user's own source: an object with metadata() and inputs(index), or anything that yields (record, fields).

    def windows(path):                      # recipe: source = "mine.py:windows", [options] path = "..."
        for number, line in enumerate(open(path)):
            yield {"id": str(number), "patient": ...}, {"x": np.asarray(...)}    # or a function that returns the fields

A list, or an object with __iter__, can be gone through again; a generator only once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from calib import config
from calib.data.source import Fault, Fields, Item, Source
from calib.errors import CalibError, ConfigError, DataError


@runtime_checkable
class Indexed(Protocol):
    """A collection of samples that can be read by position."""

    def metadata(self) -> Sequence[Mapping[str, str | int | float]]:
        """Return one flat record a sample: a unique "id", and whatever else is known (device, site, right answer)."""
        ...

    def inputs(self, index: int) -> Mapping[str, npt.NDArray[np.generic]]:
        """Return the arrays of one sample by field or input name, without the batch dimension."""
        ...


def open_user(reference: str, options: Mapping[str, Any], base: Path) -> Source:
    """Call the factory that `reference` names ("path/file.py:function", relative to `base`) with the options.

    Raises:
        ConfigError: no such factory, options that it does not take, or a result of neither form.
        DataError: the factory fails; the user's error is in the message.
    """
    factory = config.resolve(reference, base)
    try:
        source = factory(**options)
    except CalibError:
        raise
    except TypeError as error:
        raise ConfigError(f"source {reference} does not take these options: {error}") from error
    except Exception as error:  # the user's code may raise anything
        raise DataError(f"source {reference} failed: {type(error).__name__}: {error}") from error
    if isinstance(source, Indexed):
        return _ByPosition(source)
    if isinstance(source, Source):
        return source
    if isinstance(source, Iterable) and not isinstance(source, (str, bytes, Mapping)):
        return _Stream(source, reference)
    raise ConfigError(
        f"source {reference} gave a {type(source).__name__} without metadata() and inputs(index), "
        "which does not yield (record, fields) either"
    )


@dataclass(frozen=True, slots=True)
class _ByPosition:
    source: Indexed

    def items(self) -> Iterator[Item | Fault]:
        try:
            records = [dict(record) for record in self.source.metadata()]
        except Exception as error:  # the user's code may raise anything
            raise DataError(f"the source's metadata() failed: {type(error).__name__}: {error}") from error
        for position, record in enumerate(records):
            yield Item(record, _Call(partial(self.source.inputs, position), str(record.get("id"))))

    def files(self) -> Iterator[Path]:
        return iter(())


@dataclass(slots=True)
class _Stream:
    source: Iterable[Any]
    reference: str
    _begun: bool = field(default=False, init=False)

    def items(self) -> Iterator[Item | Fault]:
        try:
            pairs = iter(self.source)
        except Exception as error:  # the user's code may raise anything
            raise DataError(f"source {self.reference} failed: {type(error).__name__}: {error}") from error
        if pairs is self.source and self._begun:
            raise DataError(
                f"source {self.reference} gave a {type(self.source).__name__}, which can be gone through only once and is "
                "needed again: return a list, or an object whose __iter__ begins anew"
            )
        self._begun = True
        return self._pairs(pairs)

    def _pairs(self, pairs: Iterator[Any]) -> Iterator[Item | Fault]:
        number = 0
        while True:
            try:
                pair = next(pairs)
            except StopIteration:
                return
            except CalibError:
                raise
            except Exception as error:  # the user's code may raise anything
                raise DataError(
                    f"source {self.reference} failed at sample {number}: {type(error).__name__}: {error}"
                ) from error
            if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], Mapping)):
                raise DataError(
                    f"source {self.reference} must yield (record, fields), and sample {number} is a {type(pair).__name__}"
                )
            record, fields = pair
            yield Item(record, _Call(fields if callable(fields) else partial(dict, fields), str(record.get("id"))))
            number += 1

    def files(self) -> Iterator[Path]:
        return iter(())


@dataclass(frozen=True, slots=True)
class _Call:
    """The user's code for one sample; whatever it raises becomes a DataError that names the sample."""

    code: Callable[[], Any]
    identity: str

    def __call__(self) -> Fields:
        try:
            return {name: np.asarray(array) for name, array in self.code().items()}
        except Exception as error:  # the user's code may raise anything
            raise DataError(f"sample '{self.identity}' cannot be read: {type(error).__name__}: {error}") from error
