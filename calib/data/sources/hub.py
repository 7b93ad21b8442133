"""Hugging Face datasets: a folder that save_to_disk wrote, or what load_dataset finds, whole or streaming.

    path = "saved"                           a folder; or a name: "org/set", "imagefolder", "parquet"
    name = "small"; split = "train"; revision = "..."
    data_dir = "pages"; data_files = ["a/*.parquet"]
    streaming = true                         nothing is stored, and the data may be larger than the disk
    id, metadata, fields, shapes             as for Parquet (tables.py); a ClassLabel becomes its name

Code in a dataset's repository is never run. While streaming, a chosen sample is kept as it came (an image encoded), for
it could not be found again; else it is read where it lies. Memory is not flat while Parquet streams: `datasets` 5 reads
ahead of a slow reader without a bound, up to a whole file; the source "parquet" does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from calib.data.source import Fault, Fields, Item, Source
from calib.data.sources import cells, paths, records
from calib.data.sources.cells import Columns
from calib.errors import CalibError, ConfigError, DataError, MissingDependencyError

_ROWS = 1024
_STREAMED_ROWS = 32


def open_datasets(  # noqa: PLR0913  # the options of load_dataset
    base: Path,
    *,
    path: str,
    name: str = "",
    split: str = "",
    revision: str = "",
    streaming: bool = False,
    data_dir: str = "",
    data_files: tuple[str, ...] = (),
    id: str = "",
    metadata: tuple[str, ...] = (),
    fields: tuple[str, ...] = (),
    shapes: dict[str, tuple[int, ...]] | None = None,
) -> Source:
    """Open a dataset; the module says what the options mean. Local paths are relative to `base`.

    Raises:
        ConfigError: a path, the split or a column is wrong.
        DataError: the data cannot be loaded.
        MissingDependencyError: `datasets` is not installed.
    """
    datasets = _datasets()
    folder = _folder(base, path, with_files=bool(data_dir or data_files))
    pages = paths.locate(base, data_dir) if data_dir else None
    listed = [file for pattern in data_files for file in _data_files(base, pattern)]
    with _readable(path):
        if folder and any((folder / file).exists() for file in ("state.json", "dataset_dict.json")):
            data = datasets.load_from_disk(str(folder))
            if isinstance(data, dict) and split in data:
                data = data[split]
        else:
            builder = datasets.load_dataset_builder(
                str(folder or path),
                name or None,
                revision=revision or None,
                data_dir=str(pages) if pages else None,
                data_files=[str(file) for file in listed] or None,
            )
            data = _stream(builder, split) if streaming else _load(builder, split)
        if isinstance(data, dict):
            raise ConfigError(f"'{path}' has the splits {', '.join(data)}: name one of them as split")
        data = data.with_format("arrow")
        schema = data.features.arrow_schema if data.features else _first(data, path).schema
    columns = cells.choose(schema, f"'{path}'", id=id, metadata=metadata, fields=fields, shapes=shapes or {})
    labels = {
        column: tuple(feature.names)
        for column, feature in (data.features or {}).items()
        if isinstance(feature, datasets.ClassLabel) and column in columns.known
    }
    folders = [place for place in (folder, pages) if place]
    files = [file for file in listed if isinstance(file, Path)]
    caches = (datasets.config.HF_DATASETS_CACHE, datasets.config.DOWNLOADED_DATASETS_PATH)
    roots = (*folders, *(file.parent for file in files), *map(Path, caches))
    form = _Streamed if isinstance(data, datasets.IterableDataset) else _Stored
    return form(data, path, columns, labels, roots, (*folders, *files))


@dataclass(frozen=True, slots=True)
class _Dataset:
    """A dataset in Arrow format.

    Attributes:
        data: of `datasets`.
        name: for error messages.
        columns: what they are for.
        labels: names of the classes, by column.
        roots: folders of image files that a cell may name.
        places: local files and folders that decide what comes.
    """

    data: Any
    name: str
    columns: Columns
    labels: Mapping[str, tuple[str, ...]]
    roots: tuple[Path, ...]
    places: tuple[Path, ...]

    def files(self) -> Iterator[Path]:
        for place in self.places:
            yield from paths.walk(place) if place.is_dir() else [place]

    def _item(self, values: Mapping[str, Any], number: int, row: Callable[[], Any]) -> Item | Fault:
        known = {key: self._named(key, value) for key, value in values.items()}
        identity = known.get(self.columns.id) if self.columns.id else f"row-{number}"
        if identity is None or identity == "":
            return Fault(
                f"'{self.name}', row {number}", f"column '{self.columns.id}' is null or empty, and ids are needed"
            )
        identity = str(records.plain(identity))
        known.pop(self.columns.id, None)
        return Item(records.row(known, identity), partial(self._read, row, identity))

    def _named(self, column: str, value: Any) -> Any:
        names = self.labels.get(column)
        # -1 marks what has no label, as in the test split of a competition.
        return value if names is None else names[value] if value is not None and 0 <= value < len(names) else None

    def _read(self, row: Callable[[], Any], identity: str) -> Fields:
        with _readable(f"{self.name}' (sample '{identity}')"):
            return cells.fields(row(), self.columns, identity, self.roots)


@dataclass(frozen=True, slots=True)
class _Stored(_Dataset):
    """A dataset whose rows can be found again."""

    def items(self) -> Iterator[Item | Fault]:
        for number, values in enumerate(self._rows()):
            yield self._item(values, number, partial(self.data.__getitem__, number))

    def _rows(self) -> Iterator[Mapping[str, Any]]:
        if not self.columns.known:
            yield from ({} for _ in range(len(self.data)))
            return
        with _readable(self.name):
            for table in self.data.select_columns(list(self.columns.known)).iter(_ROWS):
                yield from cells.scalars(table)


@dataclass(frozen=True, slots=True)
class _Streamed(_Dataset):
    """A dataset that comes row by row."""

    def items(self) -> Iterator[Item | Fault]:
        for number, (values, row) in enumerate(self._rows()):
            yield self._item(values, number, row)

    def _rows(self) -> Iterator[tuple[Mapping[str, Any], Callable[[], Any]]]:
        with _readable(self.name):
            for table in self.data.iter(_STREAMED_ROWS):
                known = cells.scalars(table.select(list(self.columns.known))) or [{}] * table.num_rows
                (fields,) = table.select(list(self.columns.fields)).combine_chunks().to_batches()
                for index, values in enumerate(known):
                    # Bytes of one row: a slice would hold the whole batch.
                    yield values, partial(_unpacked, fields.slice(index, 1).serialize(), fields.schema)


def _unpacked(row: Any, schema: Any) -> Any:
    return cells.arrow().ipc.read_record_batch(row, schema)


def _datasets() -> Any:
    try:
        import datasets
    except ImportError as error:
        raise MissingDependencyError("the source 'datasets' needs Hugging Face's: pip install 'calib[data]'") from error
    return datasets


def _stream(builder: Any, split: str) -> Any:
    if hasattr(builder.config, "fragment_scan_options"):
        from pyarrow.dataset import ParquetFragmentScanOptions

        # By default every byte of a Parquet file that has been read stays in memory until its end.
        builder.config.fragment_scan_options = ParquetFragmentScanOptions(
            pre_buffer=False, use_buffered_stream=True, buffer_size=1 << 20
        )
    return builder.as_streaming_dataset(split=split or None)


def _load(builder: Any, split: str) -> Any:
    builder.download_and_prepare()
    return builder.as_dataset(split=split or None)


def _first(data: Any, path: str) -> Any:
    for table in data.iter(1):
        return table
    raise DataError(f"'{path}' holds no samples")


def _folder(base: Path, path: str, *, with_files: bool) -> Path | None:
    """Return the local folder that `path` names, None where it is a name."""
    if Path(path).is_absolute() or path.startswith(".") or (base / path).exists():
        return paths.locate(base, path)
    if not with_files and Path(path).exists():  # load_dataset would take it
        raise ConfigError(f"'{path}' lies in the current folder and not in {base}, which paths are relative to")
    return None


def _data_files(base: Path, pattern: str) -> list[Path] | list[str]:
    return [pattern] if "://" in pattern else paths.find(base, pattern, ("",))[1]


@contextmanager
def _readable(name: str) -> Iterator[None]:
    try:
        yield
    except CalibError:
        raise
    except Exception as error:  # datasets and its readers raise errors of many kinds
        raise DataError(f"the dataset '{name}' cannot be read: {type(error).__name__}: {error}") from error
