"""Building a recipe's two sets: read, choose, prepare, write; what cannot be read is an error or is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from calib import config, files
from calib.data import recipe as recipes
from calib.data import select, sets, sources, writing
from calib.data.parts import NAMES
from calib.data.prepare import Preparer
from calib.data.recipe import MODEL, Recipe
from calib.data.select import Held
from calib.data.sets import Inputs, SampleSet
from calib.data.source import Fault, Item, Record
from calib.errors import ConfigError, DataError

Embed = Callable[[Inputs], npt.NDArray[np.floating[Any]]]
"""From the inputs of one sample to a vector, for diverse selection."""

_LISTED = 100


def build(
    path: Path,
    folder: Path,
    *,
    embed: Embed | None = None,
    extend: Path | None = None,
    progress: Callable[[int], None] | None = None,
) -> tuple[SampleSet, SampleSet]:
    """Write folder/calibration and folder/evaluation, both or neither; building twice gives the same bytes.

    Args:
        path: of the recipe.
        folder: where to write.
        embed: the model's features of a sample, where the recipe chooses by them.
        extend: folder of an earlier build; all that its two sets hold stays, and what is missing is added.
        progress: called with the number of samples done since the last call.

    Raises:
        ConfigError: the recipe is wrong.
        DataError: a sample cannot be read and may not be skipped, too few exist, or `extend` is prepared otherwise.
    """
    recipe = recipes.load(path)
    for part in NAMES:
        writing.check_place(folder / part)
    building = _Building(recipe, path.parent, embed, _earlier(extend), progress)
    source = sources.open_source(recipe.source, recipe.options, path.parent)
    candidates = select.gather(building.items(source.items()), recipe.calibration, recipe.evaluation, recipe.rules)
    with ExitStack() as stack:
        places = {part: stack.enter_context(files.replacing(folder / part)) for part in NAMES}
        while True:
            known_bad = len(building.bad)
            try:  # with samples that turn out bad, what is written is incomplete, and others take their places
                selection = select.choose(
                    candidates,
                    recipe.calibration,
                    recipe.evaluation,
                    recipe.rules,
                    bad=building.bad.keys(),
                    held=building.held,
                    embed=building.vector,
                )
                for part, items in zip(NAMES, (selection.calibration, selection.evaluation), strict=True):
                    building.write(places[part], part, items, selection.notes)
            except (_SkippedError, DataError):
                if len(building.bad) == known_bad:
                    raise
                continue
            if len(building.bad) == known_bad:
                break
    return sets.read(folder / "calibration"), sets.read(folder / "evaluation")


def prepared(item: Item, preparer: Preparer) -> Inputs:
    """Read a sample and make the model's inputs of it.

    Raises:
        DataError: it cannot be read or prepared, or holds NaN or Inf; the message names it.
    """
    identity = str(item.record["id"])
    try:
        inputs = preparer.apply(item.read())
        sets.check_finite(identity, inputs)
    except DataError as error:
        text = str(error)
        raise DataError(text if identity in text else f"sample '{identity}': {text}") from error
    return inputs


class _SkippedError(Exception):
    """A sample could not be read, and may be left out."""


class _Building:
    """What one build goes through: samples that are read, prepared, embedded or left out."""

    def __init__(
        self,
        recipe: Recipe,
        base: Path,
        embed: Embed | None,
        earlier: Mapping[str, SampleSet],
        progress: Callable[[int], None] | None,
    ) -> None:
        self._recipe = recipe
        self._preparer = recipes.preparer(recipe, base)
        self._embed = _embedding(recipe, base, embed)
        self._earlier = earlier
        self._progress = progress
        self._vectors: dict[str, npt.NDArray[Any]] = {}
        self._records = 0
        self._faults: list[tuple[str, str]] = []
        self.bad: dict[str, str] = {}
        for part, known in earlier.items():
            if dict(known.preparation) != self._preparer.record():
                raise DataError(
                    f"{known.where} was prepared otherwise than the recipe says, so it cannot be extended: build a new {part} set"
                )
        records = {part: tuple(entry.metadata for entry in known.entries) for part, known in earlier.items()}
        self.held = Held(records.get("calibration", ()), records.get("evaluation", ()))

    @property
    def vector(self) -> Callable[[Item], npt.NDArray[Any]] | None:
        """From an item to its vector, once each; None where nothing makes one."""
        return self._vector if self._embed else None

    def items(self, stream: Iterator[Item | Fault]) -> Iterator[Item]:
        """Yield what can be read of a stream, up to the recipe's limit."""
        for item in islice(stream, self._recipe.limit or None):
            self._records += 1
            if isinstance(item, Fault):
                self._leave_out(item.where, f"{item.where}: {item.reason}", self._faults.append)
            else:
                yield item

    def write(self, place: Path, part: str, items: Sequence[Item], notes: tuple[str, ...]) -> None:
        """Write one of the two sets, what is held first."""
        earlier = self._earlier.get(part)
        records = [*(entry.metadata for entry in earlier.entries)] if earlier else []
        records += [item.record for item in items]
        most = sets.BLOCKS if part == "calibration" else 1
        blocks = select.blocks(records, self._recipe.group, most)
        order = sorted(range(len(records)), key=lambda position: blocks[position])
        skipped = [*self._faults, *self.bad.items()]
        header = {
            "recipe": self._recipe.name,
            "part": part,
            "target": self._recipe.target,
            "stratify": list(self._recipe.stratify),
            "group": self._recipe.group,
            "preparation": self._preparer.record(),
            "records": self._records,
            "skipped": len(skipped),
            "first_skipped": [{"sample": where, "reason": reason} for where, reason in skipped[:_LISTED]],
            "notes": [*notes, *self._skip_note(len(skipped))],
        }
        writing.write(place, self._samples(order, items, earlier), header, [blocks[position] for position in order])

    def _samples(
        self, order: Sequence[int], items: Sequence[Item], earlier: SampleSet | None
    ) -> Iterator[tuple[str, Inputs, Record]]:
        held = len(earlier) if earlier else 0
        for position in order:
            if earlier and position < held:
                entry = earlier.entries[position]
                yield entry.id, earlier.one(position), entry.metadata
                continue
            item = items[position - held]
            try:
                inputs = self._inputs(item)
            except _SkippedError:
                continue
            if self._recipe.target and self._recipe.target not in item.record:
                raise DataError(
                    f"the recipe's target '{self._recipe.target}' is a column that sample '{item.record['id']}' does not have"
                )
            yield str(item.record["id"]), inputs, item.record
            if self._progress:
                self._progress(1)

    def _inputs(self, item: Item) -> Inputs:
        try:
            return prepared(item, self._preparer)
        except DataError as error:
            self._leave_out(str(item.record["id"]), str(error), lambda pair: self.bad.update([pair]))
            raise _SkippedError from error

    def _held_inputs(self, identity: str) -> Inputs | None:
        """Return the inputs of a sample that an earlier set holds; the source may have it no more."""
        for known in self._earlier.values():
            for position, entry in enumerate(known.entries):
                if entry.id == identity:
                    return known.one(position)
        return None

    def _vector(self, item: Item) -> npt.NDArray[Any]:
        assert self._embed is not None  # `vector` is None then
        identity = str(item.record["id"])
        if identity not in self._vectors:
            try:
                self._vectors[identity] = np.asarray(self._embed(self._held_inputs(identity) or self._inputs(item)))
            except (DataError, _SkippedError):
                raise
            except Exception as error:  # the user's function may raise anything
                raise DataError(
                    f"features {self._recipe.features} fails on sample '{identity}': {type(error).__name__}: {error}"
                ) from error
        return self._vectors[identity]

    def _leave_out(self, where: str, reason: str, keep: Callable[[tuple[str, str]], None]) -> None:
        if len(self._faults) + len(self.bad) >= self._recipe.skip:
            allowed = f" (the recipe's skip = {self._recipe.skip} is used up)" if self._recipe.skip else ""
            remedy = "or" if "repair" in reason else "repair it, or"  # many a reason says so itself
            raise DataError(f"{reason}{allowed}; {remedy} let the recipe leave such samples out: skip = N")
        keep((where, reason))

    def _skip_note(self, skipped: int) -> list[str]:
        return [f"{skipped} samples could not be read and were left out (first_skipped lists them)"] if skipped else []


def _embedding(recipe: Recipe, base: Path, embed: Embed | None) -> Embed | None:
    if recipe.features in ("", MODEL):
        return embed
    function: Embed = config.resolve(recipe.features, base)
    if not callable(function):
        raise ConfigError(f"features: {recipe.features} is not a function from inputs to a vector")
    return function


def _earlier(extend: Path | None) -> dict[str, SampleSet]:
    return {part: sets.read(extend / part) for part in NAMES} if extend else {}
