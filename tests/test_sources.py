"""Sources: what comes out of real files is what went in, a sample at a time, in flat memory."""

import base64
import datetime
import decimal
import gzip
import io
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import feather, parquet

from calib.data.source import Fault, Item, Source
from calib.data.sources import open_source
from calib.errors import ConfigError, DataError

Arrays = dict[str, np.ndarray]


def collect(source: Source) -> list[Item]:
    """Every sample, none of which may be a fault; a second pass must give the same."""
    found = list(source.items())
    assert not [item for item in found if isinstance(item, Fault)], found[:3]
    assert [item.record for item in source.items()] == [item.record for item in found]
    return found


def assert_fields(item: Item, **wanted: np.ndarray) -> None:
    fields = item.read()
    assert list(fields) == list(wanted)
    for name, array in wanted.items():
        assert fields[name].dtype == array.dtype, name
        np.testing.assert_array_equal(fields[name], array)


def png(value: int, rows: int = 3) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((rows, 4, 3), value, np.uint8)).save(file, "png")
    return file.getvalue()


def pixels(value: int, rows: int = 3) -> np.ndarray:
    return np.full((rows, 4, 3), value, np.uint8)


@pytest.fixture
def stacked() -> Arrays:
    draws = np.random.default_rng(1)
    return {
        "x": draws.normal(size=(7, 2, 3)).astype(np.float32),
        "tokens": np.arange(7 * 5).reshape(7, 5),
        "subject": np.array([f"s{i // 2}" for i in range(7)]),
        "label": np.array([0, 1, 1, 0, 2, 1, 0]),
        "when": np.array(["2026-03-02", "NaT", *["2026-03-05"] * 5], "datetime64[D]"),
        "weight": np.array([0.5, np.nan, *[1.5] * 5]),
        "name": np.array([f"window {i}" for i in range(7)]),
    }


class TestArrays:
    COLUMNS = ("subject", "label", "when", "weight")

    @pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
    def test_stacked_members_are_fields_and_metadata(
        self, save: Callable[..., None], stacked: Arrays, tmp_path: Path
    ) -> None:
        save(tmp_path / "a.npz", **stacked)
        source = open_source("arrays", {"path": "a.npz", "metadata": list(self.COLUMNS), "id": "name"}, tmp_path)
        items = collect(source)
        assert [item.record["id"] for item in items] == [f"window {i}" for i in range(7)]
        assert items[0].record == {"id": "window 0", "subject": "s0", "label": 0, "when": "2026-03-02", "weight": 0.5}
        assert items[1].record == {"id": "window 1", "subject": "s0", "label": 1}, "what is unknown is left out"
        for row in (6, 0, 3):
            assert_fields(items[row], x=stacked["x"][row], tokens=stacked["tokens"][row])
        assert list(source.files()) == [tmp_path / "a.npz"]

    def test_members_are_mapped_and_not_loaded(self, stacked: Arrays, tmp_path: Path) -> None:
        from calib.data.sources import npy

        np.savez(tmp_path / "a.npz", **stacked)
        np.savez_compressed(tmp_path / "b.npz", **stacked)
        for name in "ab":
            arrays = npy.read_npz(tmp_path / f"{name}.npz", 1)
            assert all(isinstance(array, np.memmap) for array in arrays.values())
            assert (str(arrays["x"].filename) == str(tmp_path / "a.npz")) == (name == "a"), (
                "in place where it is stored"
            )

    def test_a_npy_in_any_order_of_bytes_and_axes(self, tmp_path: Path) -> None:
        x = np.random.default_rng(0).normal(size=(5, 3, 4)).astype(">f4")
        for name, array in (("c", x), ("f", np.asfortranarray(x))):
            np.save(tmp_path / f"{name}.npy", array)
            items = collect(open_source("arrays", {"path": f"{name}.npy", "input": "audio"}, tmp_path))
            assert [item.record for item in items] == [{"id": f"row-{i}"} for i in range(5)]
            assert_fields(items[4], audio=x[4].astype(np.float32))

    def test_a_folder_with_a_file_a_sample_of_any_shape(self, tmp_path: Path) -> None:
        for number, length in enumerate((4, 9, 2)):
            (tmp_path / "data" / "deep").mkdir(parents=True, exist_ok=True)
            place = tmp_path / "data" / ("deep" if number else "") / f"{number}.npz"
            np.savez(place, x=np.arange(length), n=np.float32(number), site=np.array(f"site {number}"))
        (tmp_path / "data" / "notes.txt").write_text("no sample")
        items = collect(open_source("arrays", {"path": "data", "metadata": ["site"]}, tmp_path))
        assert [item.record for item in items] == [
            {"id": "0", "site": "site 0"},
            {"id": "deep/1", "site": "site 1"},
            {"id": "deep/2", "site": "site 2"},
        ]
        assert_fields(items[1], x=np.arange(9), n=np.array(1, np.float32))

    def test_an_absolute_path_may_lie_elsewhere(self, stacked: Arrays, tmp_path: Path) -> None:
        np.save(tmp_path / "x.npy", stacked["x"])
        (tmp_path / "recipes").mkdir()
        assert len(collect(open_source("arrays", {"path": str(tmp_path / "x.npy")}, tmp_path / "recipes"))) == 7


def table(rows: range) -> pa.Table:
    """A table with a column of every kind that is read."""
    day = datetime.datetime(2026, 3, 2, tzinfo=datetime.UTC)
    flat = pa.array(np.arange(6 * len(rows), dtype=np.float32) + 6 * rows.start)
    tensors = pa.FixedSizeListArray.from_arrays(flat, 6)
    return pa.table(
        {
            "id": [f"r{i}" for i in rows],
            "device": pa.array(["fax" if i % 3 else None for i in rows]).dictionary_encode(),
            "page": pa.array([i for i in rows], pa.int16()),
            "ok": [i % 2 == 0 for i in rows],
            "price": [decimal.Decimal(i) / 4 for i in rows],
            "weight": [float("nan") if i == 1 else i / 2 for i in rows],
            "day": [day.date() + datetime.timedelta(i) for i in rows],
            "time": pa.array([day + datetime.timedelta(hours=i) for i in rows], pa.timestamp("ns", "UTC")),
            "x": tensors,
            "nested": pa.array([[[i, 1, 2], [3, 4, 5]] for i in rows], pa.list_(pa.list_(pa.int64()))),
            "ragged": [[float(i)] * (i % 4 + 1) for i in rows],
            "tensor": pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.float32(), [3, 2]), tensors),
            "image": [png(i % 250, 3 + i % 2) for i in rows],
            "photo": [{"bytes": png(i % 250), "path": "x.png"} for i in rows],
            "length": pa.array([i for i in rows], pa.int32()),
        }
    )


WRITERS: dict[str, Callable[[pa.Table, Path], Any]] = {
    "a.parquet": lambda t, path: parquet.write_table(t, path, row_group_size=3),
    "a.arrow": lambda t, path: write_ipc(pa.ipc.new_file, t, path),
    "stream.arrow": lambda t, path: write_ipc(pa.ipc.new_stream, t, path),
    "a.feather": lambda t, path: feather.write_feather(t, path, compression="zstd", chunksize=4),
}


def write_ipc(open_: Callable[..., Any], data: pa.Table, path: Path) -> None:
    with open_(str(path), data.schema) as writer:
        writer.write_table(data.unify_dictionaries(), max_chunksize=4)


def kind_of(name: str) -> str:
    return "parquet" if name.endswith(".parquet") else "arrow"


class TestTables:
    FIELDS = ("x", "nested", "ragged", "tensor", "image", "photo", "length")

    @pytest.mark.parametrize("name", WRITERS)
    def test_every_kind_of_column(self, name: str, tmp_path: Path) -> None:
        WRITERS[name](table(range(40)), tmp_path / name)
        options = {"path": name, "fields": list(self.FIELDS), "shapes": {"x": [2, 3]}}
        items = collect(open_source(kind_of(name), options, tmp_path))
        assert items[0].record == {
            "id": "r0",
            "page": 0,
            "ok": 1,
            "price": 0,
            "weight": 0.0,
            "day": "2026-03-02",
            "time": "2026-03-02T00:00:00+00:00",
        }
        assert items[1].record["device"] == "fax"
        assert items[1].record["price"] == 0.25
        assert "weight" not in items[1].record
        order = list(range(40))
        random.Random(0).shuffle(order)  # chosen samples are read in any order, from more row groups than are kept
        for row in order:
            values = np.arange(6, dtype=np.float32) + 6 * row
            assert_fields(
                items[row],
                x=values.reshape(2, 3),
                nested=np.array([[row, 1, 2], [3, 4, 5]]),
                ragged=np.full(row % 4 + 1, float(row)),
                tensor=values.reshape(3, 2),
                image=pixels(row, 3 + row % 2),
                photo=pixels(row),
                length=np.array(row, np.int32),
            )

    def test_columns_are_told_by_their_types(self, tmp_path: Path) -> None:
        parquet.write_table(table(range(3)), tmp_path / "a.parquet")
        items = collect(open_source("parquet", {"path": "a.parquet"}, tmp_path))
        assert set(items[1].record) == {"id", "device", "page", "ok", "price", "day", "time", "length"}
        assert set(items[1].read()) == set(self.FIELDS) - {"length"}
        named = {"path": "a.parquet", "id": "page", "metadata": ["device"], "fields": ["image"]}
        items = collect(open_source("parquet", named, tmp_path))
        assert items[2].record == {"id": "2", "device": "fax"}
        assert list(items[2].read()) == ["image"]

    def test_a_folder_and_a_pattern_are_read_in_order(self, tmp_path: Path) -> None:
        for number in (2, 0, 1):
            part = table(range(number * 2, number * 2 + 2)).drop_columns(["id"])
            parquet.write_table(part, tmp_path / f"part-{number}.parquet")
        (tmp_path / "_SUCCESS").write_text("")
        for path in (".", "part-*.parquet"):
            source = open_source("parquet", {"path": path, "fields": ["x"], "metadata": ["page"]}, tmp_path)
            assert [item.record for item in collect(source)] == [
                {"id": f"part-{i // 2}.parquet:{i % 2}", "page": i} for i in range(6)
            ]
            assert [file.name for file in source.files()] == [f"part-{i}.parquet" for i in range(3)]

    def test_without_metadata_nothing_is_decoded_in_the_first_pass(self, tmp_path: Path) -> None:
        parquet.write_table(table(range(5)).select(["x"]), tmp_path / "a.parquet")
        feather.write_feather(table(range(5)).select(["x"]), tmp_path / "a.arrow")
        for name in ("a.parquet", "a.arrow"):
            items = collect(open_source(kind_of(name), {"path": name}, tmp_path))
            assert [item.record for item in items] == [{"id": f"{name}:{i}"} for i in range(5)]
            assert_fields(items[3], x=np.arange(18, 24, dtype=np.float32))


@pytest.fixture
def hugging_face(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> datasets.Dataset:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "label": datasets.ClassLabel(names=["cat", "dog"]),
            "x": datasets.Array2D((2, 2), "float32"),
            "tokens": datasets.List(datasets.Value("int64")),
        }
    )
    columns = {
        "image": [{"bytes": png(i), "path": None} for i in range(6)],
        "label": [0, 1, 1, -1, 0, 1],
        "x": [np.full((2, 2), i, np.float32) for i in range(6)],
        "tokens": [[i] * (i + 1) for i in range(6)],
    }
    return datasets.Dataset.from_dict(columns, features=features)


class TestDatasets:
    def check(self, source: Source) -> None:
        items = collect(source)
        assert [item.record.get("label") for item in items] == ["cat", "dog", "dog", None, "cat", "dog"]
        assert [item.record["id"] for item in items] == [f"row-{i}" for i in range(6)]
        for row in (4, 1):
            x = np.full((2, 2), row, np.float32)
            assert_fields(items[row], image=pixels(row), x=x, tokens=np.array([row] * (row + 1)))

    def test_a_saved_folder(self, hugging_face: datasets.Dataset, tmp_path: Path) -> None:
        hugging_face.save_to_disk(tmp_path / "saved")
        source = open_source("datasets", {"path": "saved"}, tmp_path)
        self.check(source)
        assert {file.name for file in source.files()} >= {"state.json", "data-00000-of-00001.arrow"}
        datasets.DatasetDict(train=hugging_face, test=hugging_face).save_to_disk(tmp_path / "both")
        self.check(open_source("datasets", {"path": "both", "split": "test"}, tmp_path))
        with pytest.raises(ConfigError, match="has the splits train, test: name one"):
            open_source("datasets", {"path": "both"}, tmp_path)

    @pytest.mark.parametrize("streaming", [False, True])
    def test_load_dataset(self, streaming: bool, hugging_face: datasets.Dataset, tmp_path: Path) -> None:
        hugging_face.to_parquet(tmp_path / "a.parquet")
        options = {"path": "parquet", "data_files": ["*.parquet"], "split": "train", "streaming": streaming}
        source = open_source("datasets", options, tmp_path)
        self.check(source)
        assert list(source.files()) == [tmp_path / "a.parquet"]

    @pytest.mark.parametrize("streaming", [False, True])
    def test_an_image_folder(self, streaming: bool, hugging_face: datasets.Dataset, tmp_path: Path) -> None:
        for name, value in (("cat", 10), ("dog", 20)):
            (tmp_path / "pages" / name).mkdir(parents=True)
            (tmp_path / "pages" / name / "1.png").write_bytes(png(value))
        options = {"path": "imagefolder", "data_dir": "pages", "split": "train", "streaming": streaming}
        items = collect(open_source("datasets", options, tmp_path))
        assert [item.record["label"] for item in items] == ["cat", "dog"]
        assert_fields(items[1], image=pixels(20))

    def test_streaming_without_known_features(self, hugging_face: datasets.Dataset, tmp_path: Path) -> None:
        lines = [json.dumps({"id": f"j{i}", "x": [[i, 1], [2, 3]], "site": "a"}) for i in range(70)]
        (tmp_path / "a.jsonl").write_text("\n".join(lines))
        options = {"path": "json", "data_files": ["a.jsonl"], "split": "train", "streaming": True}
        items = collect(open_source("datasets", options, tmp_path))
        assert items[65].record == {"id": "j65", "site": "a"}
        assert_fields(items[65], x=np.array([[65, 1], [2, 3]]))


class TestCapture:
    def write(self, folder: Path, packed: bool = False) -> str:
        np.save(folder / "a.npy", np.arange(6, dtype=np.float16).reshape(2, 3))
        (folder / "images").mkdir()
        (folder / "images" / "a.png").write_bytes(png(9))
        x = np.linspace(-1, 1, 6, dtype=np.float64).reshape(2, 3)
        encoded = {"data": base64.b64encode(x.tobytes()).decode(), "dtype": "float64", "shape": [2, 3]}
        entries: list[dict[str, Any]] = [
            {
                "id": "files",
                "time": "2026-03-02T10:00:00Z",
                "inputs": {"x": {"path": "a.npy"}, "i": {"path": "images/a.png"}},
            },
            {"id": "base64", "device": "fax", "ok": True, "none": None, "n": 0.5, "inputs": {"x": encoded}},
            {"id": 3, "inputs": {"x": {"data": [[1, 2.5]]}, "n": {"data": 7}, "t": {"data": [1, 2], "dtype": "int32"}}},
            {"id": "é", "inputs": {"x": {"data": [1, 2, 3, 4], "dtype": "uint8", "shape": [2, 2]}}},
        ]
        text = "\n\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
        name = "log.jsonl" + ".gz" * packed
        (folder / name).write_bytes(gzip.compress(text.encode()) if packed else b"\xef\xbb\xbf" + text.encode())
        return name

    @pytest.mark.parametrize("packed", [False, True])
    def test_every_form_of_input(self, packed: bool, tmp_path: Path) -> None:
        items = collect(open_source("jsonl", {"path": self.write(tmp_path, packed)}, tmp_path))
        assert [item.record for item in items] == [
            {"id": "files", "time": "2026-03-02T10:00:00Z"},
            {"id": "base64", "device": "fax", "ok": 1, "n": 0.5},
            {"id": "3"},
            {"id": "é"},
        ]
        assert_fields(items[3], x=np.array([[1, 2], [3, 4]], np.uint8))
        assert_fields(items[0], x=np.arange(6, dtype=np.float16).reshape(2, 3), i=pixels(9))
        assert_fields(items[1], x=np.linspace(-1, 1, 6).reshape(2, 3))
        assert_fields(items[2], x=np.array([[1, 2.5]], np.float32), n=np.array(7), t=np.array([1, 2], np.int32))

    def test_a_folder_of_logs(self, tmp_path: Path) -> None:
        for day in (2, 1):
            (tmp_path / f"day-{day}.jsonl").write_text(json.dumps({"id": str(day), "inputs": {"x": {"data": [day]}}}))
        assert [item.record["id"] for item in collect(open_source("jsonl", {"path": "."}, tmp_path))] == ["1", "2"]

    def test_the_documented_writer_writes_what_is_read(self, tmp_path: Path) -> None:
        from calib.data.sources import capture

        code = (capture.__doc__ or "").split("This writes such a log:")[1].split("A line that")[0]
        scope: dict[str, Any] = {"base64": base64, "json": json}
        exec("if True:\n" + code, scope)
        x = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
        with (tmp_path / "log.jsonl").open("w") as log:
            for number in range(3):
                scope["capture"](log, f"r{number}", {"x": x * number, "n": np.int64([number])}, device="fax")
        items = collect(open_source("jsonl", {"path": "log.jsonl"}, tmp_path))
        assert items[2].record == {"id": "r2", "device": "fax"}
        assert_fields(items[2], x=x * 2, n=np.array([2]))


USER = """
import itertools
import numpy as np

def pairs(count):
    return [({"id": f"p{i}", "site": i % 2}, {"x": np.full(2, i)}) for i in range(count)]

def lazily(count):
    return [({"id": f"p{i}"}, lambda i=i: {"x": np.full(2, i)}) for i in range(count)]

def endless():
    for i in itertools.count():
        yield {"id": str(i)}, {"x": np.full(2, i)}

class Again:
    def __iter__(self):
        return endless()

def again():
    return Again()

def wrong(what):
    if what == "form":
        return 5
    return [("id", 1)] if what == "pair" else broken()

def broken():
    yield {"id": "a"}, lambda: 1 / 0
    raise RuntimeError("lost connection")

class Indexed:
    def metadata(self):
        return [{"id": 1}, {"id": 2}]
    def inputs(self, index):
        return {"x": np.full(2, index)}
"""


class TestUser:
    @pytest.fixture
    def base(self, tmp_path: Path) -> Path:
        (tmp_path / "mine.py").write_text(USER)
        return tmp_path

    def test_pairs_with_arrays_or_functions(self, base: Path) -> None:
        items = collect(open_source("mine.py:pairs", {"count": 5}, base))
        assert items[3].record == {"id": "p3", "site": 1}
        assert_fields(items[3], x=np.full(2, 3))
        assert_fields(collect(open_source("mine.py:lazily", {"count": 5}, base))[4], x=np.full(2, 4))

    def test_an_object_with_metadata_and_inputs(self, base: Path) -> None:
        items = collect(open_source("mine.py:Indexed", {}, base))
        assert [item.record for item in items] == [{"id": "1"}, {"id": "2"}]
        assert_fields(items[1], x=np.full(2, 1))

    def test_an_endless_stream_is_taken_as_it_comes(self, base: Path) -> None:
        source = open_source("mine.py:again", {}, base)
        for _ in range(2):
            assert [item.record["id"] for item in islice(source.items(), 3)] == ["0", "1", "2"]
        source = open_source("mine.py:endless", {}, base)
        (item,) = islice(source.items(), 1)
        assert_fields(item, x=np.zeros(2, int))
        with pytest.raises(DataError, match="generator, which can be gone through only once"):
            next(source.items())

    def test_errors_of_the_users_code_are_named(self, base: Path) -> None:
        with pytest.raises(ConfigError, match="gave a int without"):
            open_source("mine.py:wrong", {"what": "form"}, base)
        with pytest.raises(DataError, match=r"must yield \(record, fields\), and sample 0"):
            next(open_source("mine.py:wrong", {"what": "pair"}, base).items())
        items = open_source("mine.py:wrong", {"what": "stream"}, base).items()
        with pytest.raises(DataError, match="sample 'a' cannot be read: ZeroDivisionError"):
            next(items).read()
        with pytest.raises(DataError, match="failed at sample 1: RuntimeError: lost connection"):
            next(items)


MEASURE = """
import random, sys
from pathlib import Path
from calib.data.sources import open_source

def own():  # pages of mapped files are the system's to drop
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon")) // 1024

kind, path = sys.argv[1:]
reservoir, peak = [], 0
draws = random.Random(0)
for number, item in enumerate(open_source(kind, {"path": path}, Path.cwd()).items()):
    if number < 32:
        reservoir.append(item)
    elif (place := draws.randrange(number + 1)) < 32:
        reservoir[place] = item
    if number % 100 == 0:
        peak = max(peak, own())
for item in reservoir:
    item.read()["x"]
    peak = max(peak, own())
print(number + 1, peak)
"""
VALUES = 1024


class TestMemory:
    """Four times the samples, 60 MB more data: the peak may grow by the ids' hashes, some 80 bytes a sample."""

    @staticmethod
    def rows(count: int) -> Iterator[tuple[int, np.ndarray]]:
        x = np.arange(VALUES, dtype=np.uint16)
        return ((number, x + number % 1000) for number in range(count))

    def write_arrays(self, folder: Path, count: int) -> str:
        x = np.lib.format.open_memmap(folder / "x.npy", "w+", np.uint16, (count, VALUES))
        for number, row in self.rows(count):
            x[number] = row
        x.flush()
        return "x.npy"

    def write_parquet(self, folder: Path, count: int) -> str:
        schema = pa.schema({"id": pa.int64(), "x": pa.list_(pa.uint16(), VALUES)})
        with parquet.ParquetWriter(folder / "x.parquet", schema, compression="none", use_dictionary=False) as writer:
            for start in range(0, count, 500):
                flat = np.stack([row for _, row in self.rows(500)]).ravel()
                columns = [np.arange(start, start + 500), pa.FixedSizeListArray.from_arrays(flat, VALUES)]
                writer.write_table(pa.table(columns, schema=schema))
        return "x.parquet"

    def write_jsonl(self, folder: Path, count: int) -> str:
        with (folder / "x.jsonl").open("w") as log:
            for number, row in self.rows(count):
                data = base64.b64encode(row.tobytes()).decode()
                log.write(
                    f'{{"id": {number}, "inputs": {{"x": {{"data": "{data}", "dtype": "uint16", "shape": [{VALUES}]}}}}}}\n'
                )
        return "x.jsonl"

    @pytest.mark.parametrize("kind", ["arrays", "parquet", "jsonl"])
    def test_four_times_the_samples_need_no_more_memory(self, kind: str, tmp_path: Path) -> None:
        peaks = []
        for count in (10_000, 40_000):
            name = getattr(self, f"write_{kind}")(tmp_path, count)
            command = [sys.executable, "-c", MEASURE, kind, name]
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
            assert done.returncode == 0, done.stderr
            samples, peak = map(int, done.stdout.split())
            assert samples == count
            peaks.append(peak)
        assert peaks[1] - peaks[0] < 24, peaks
