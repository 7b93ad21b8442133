"""Bad data: every source refuses it with a message that names the file or sample, or gives a Fault; never a traceback."""

import gzip
import io
import json
import pickle
import struct
import zipfile
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather, parquet

from calib.data.source import Fault, Item
from calib.data.sources import open_source
from calib.errors import CalibError, ConfigError, DataError


def refused(kind: str, options: dict[str, Any], base: Path, match: str, error: type[CalibError] = DataError) -> None:
    """Opening, going through or reading the data raises `error`."""
    with pytest.raises(error, match=match):
        for item in open_source(kind, options, base).items():
            assert isinstance(item, Item), item
            item.read()


def faults(kind: str, options: dict[str, Any], base: Path) -> list[Fault]:
    return [item for item in open_source(kind, options, base).items() if isinstance(item, Fault)]


def ours_or_none(kind: str, name: str, base: Path) -> None:
    """Damaged data may be read, for no format has a checksum of all its bytes; or it is refused."""
    with suppress(CalibError):
        for item in islice(open_source(kind, {"path": name}, base).items(), 5):
            if isinstance(item, Item):
                item.read()


def npy(array: np.ndarray, **options: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


class TestOptions:
    @pytest.mark.parametrize(
        ("kind", "options", "match"),
        [
            ("arays", {}, "no source 'arays'; did you mean 'arrays'"),
            ("nothing", {}, "known are images, arrays, .*path/file.py:attribute"),
            ("arrays", {}, "source 'arrays'.*'path' is missing"),
            ("arrays", {"path": "x.npy", "metdata": ["a"]}, "unknown key 'metdata'; did you mean 'metadata'"),
            ("parquet", {"path": 3}, "path must be a string, not 3"),
            ("arrays", {"path": "none.npy"}, "none.npy does not exist"),
            ("arrays", {"path": ""}, "'path' is empty"),
            ("arrays", {"path": "x.npy", "expand_mb": 0}, "expand_mb must be at least 1"),
            ("arrays", {"path": "x.npy", "metadata": ["a"]}, "has no array 'a', which the recipe names; it has x"),
            ("datasets", {"path": "parquet", "data_files": ["none.parquet"], "split": "train"}, "does not exist"),
        ],
    )
    def test_wrong_ones_are_named(self, kind: str, options: dict[str, Any], match: str, tmp_path: Path) -> None:
        base = tmp_path / "recipes"
        base.mkdir()
        np.save(base / "x.npy", np.zeros((2, 3)))
        (tmp_path / "log.jsonl").write_text("")
        (base / "link").symlink_to(tmp_path)
        refused(kind, options, base, match, ConfigError)


class TestPaths:
    @pytest.mark.parametrize(("kind", "name"), [("parquet", "a.parquet"), ("arrays", "a.npz"), ("jsonl", "a.jsonl")])
    def test_a_folder_without_data_and_links_out_of_it(self, kind: str, name: str, tmp_path: Path) -> None:
        (tmp_path / "data").mkdir()
        refused(kind, {"path": "data"}, tmp_path, f"data holds no .*{Path(name).suffix}")
        refused(kind, {"path": "data/*"}, tmp_path, "no file in .* matches")
        (tmp_path / "outside").write_text("secret")
        (tmp_path / "data" / name).symlink_to(tmp_path / "outside")
        refused(kind, {"path": "data"}, tmp_path, f"{name} is a link that leads out")
        (tmp_path / "data" / name).unlink()
        (tmp_path / "data" / name).symlink_to(tmp_path / "data" / name)
        refused(kind, {"path": "data"}, tmp_path, "cannot be followed")
        (tmp_path / "data" / name).unlink()
        (tmp_path / "data" / "folder").symlink_to(tmp_path)
        refused(kind, {"path": "data"}, tmp_path, "folder is a link that leads out")


class TestArrays:
    @pytest.mark.parametrize(
        ("content", "match"),
        [
            (b"", "x.npy is empty"),
            (b"not an array", "x.npy is not a readable .npy"),
            (npy(np.zeros((4, 5)))[:-1], r"declares float64 \[4, 5\], .* truncated"),
            (npy(np.zeros((4, 5)))[:20], "x.npy is not a readable"),
            (npy(np.zeros((4, 5))) + b"more", "truncated or damaged"),
            (npy(np.array([{}, None]), allow_pickle=True), "pickled Python objects"),
            (pickle.dumps({}), "x.npy is not a readable"),
            (npy(np.zeros(3, "f4,i4")), "arrays of numbers"),
            (npy(np.zeros((3, 2), complex)), "arrays of numbers"),
            (npy(np.array(["a", "b"])), "input 'x' has dtype <U1"),
            (npy(np.float32(3)), "must hold arrays"),
            (npy(np.zeros((0, 3))), "must hold arrays"),
        ],
    )
    def test_a_bad_npy(self, content: bytes, match: str, tmp_path: Path) -> None:
        (tmp_path / "x.npy").write_bytes(content)
        refused("arrays", {"path": "x.npy"}, tmp_path, match)

    def test_a_header_that_claims_more_than_memory(self, tmp_path: Path) -> None:
        header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 1000000000000)}\n"
        (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header)
        refused("arrays", {"path": "x.npy"}, tmp_path, "truncated or damaged")

    @pytest.mark.parametrize(
        ("members", "match"),
        [
            ({"../x.npy": npy(np.zeros((2, 2)))}, "not an array with a plain name"),
            ({"/x.npy": npy(np.zeros((2, 2)))}, "not an array with a plain name"),
            ({"run.sh": b"rm"}, "not an array with a plain name"),
            ({"x.npy": b"text"}, "not a readable .npz"),
            ({"x.npy": npy(np.zeros((2, 2))), "y.npy": npy(np.zeros((3, 2)))}, r"same N .*'x' \[2, 2\], 'y' \[3, 2\]"),
            ({"x.npy": npy(np.zeros((2, 2)))[:-3]}, "array 'x' declares"),
        ],
    )
    @pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    def test_a_bad_npz(self, members: dict[str, bytes], match: str, method: int, tmp_path: Path) -> None:
        with zipfile.ZipFile(tmp_path / "a.npz", "w", method) as archive:
            for name, content in members.items():
                archive.writestr(name, content)
        refused("arrays", {"path": "a.npz"}, tmp_path, match)

    @pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
    def test_any_truncated_npz(self, save: Any, tmp_path: Path) -> None:
        save(tmp_path / "whole.npz", x=np.random.default_rng(0).normal(size=(4, 50)), y=np.arange(4))
        whole = (tmp_path / "whole.npz").read_bytes()
        for size in range(0, len(whole), max(1, len(whole) // 40)):
            (tmp_path / "a.npz").write_bytes(whole[:size])
            refused("arrays", {"path": "a.npz"}, tmp_path, "a.npz")

    def test_any_flipped_byte_gives_an_error_of_ours_or_none(self, tmp_path: Path) -> None:
        np.savez_compressed(tmp_path / "whole.npz", x=np.random.default_rng(0).normal(size=(4, 20)))
        whole = (tmp_path / "whole.npz").read_bytes()
        for place in range(0, len(whole), 3):
            changed = bytearray(whole)
            changed[place] ^= 0xFF
            (tmp_path / "a.npz").write_bytes(changed)
            ours_or_none("arrays", "a.npz", tmp_path)

    def test_a_bomb_is_refused_unless_the_recipe_allows_it(self, tmp_path: Path) -> None:
        np.savez_compressed(tmp_path / "a.npz", x=np.zeros((3, 1 << 20), np.uint8))
        assert (tmp_path / "a.npz").stat().st_size < (3 << 20) / 100
        refused("arrays", {"path": "a.npz", "expand_mb": 2}, tmp_path, "zip bomb.* raise expand_mb")
        assert len(list(open_source("arrays", {"path": "a.npz", "expand_mb": 4}, tmp_path).items())) == 3

    def test_members_that_share_bytes_are_refused(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "a.npz", x=np.zeros((2, 2)), y=np.zeros((2, 2)))
        raw = bytearray((tmp_path / "a.npz").read_bytes())
        second = raw.rindex(b"PK\1\2")  # its entry in the directory: let it name the first member's place
        raw[second + 42 : second + 46] = struct.pack("<I", 0)
        (tmp_path / "a.npz").write_bytes(raw)
        refused("arrays", {"path": "a.npz"}, tmp_path, "overlaps another")

    def test_a_size_that_lies_is_noticed(self, tmp_path: Path) -> None:
        """The directory says that a member is small; its data goes on."""
        small, large = npy(np.zeros((2, 8))), npy(np.zeros((2, 80000)))
        with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("x.npy", large)
        raw = bytearray((tmp_path / "a.npz").read_bytes())
        entry = raw.rindex(b"PK\1\2")
        raw[entry + 24 : entry + 28] = struct.pack("<I", len(small))
        (tmp_path / "a.npz").write_bytes(raw)
        refused("arrays", {"path": "a.npz"}, tmp_path, "a.npz is not a readable")

    def test_one_bad_file_of_a_folder_costs_one_sample(self, tmp_path: Path) -> None:
        for name in "abc":
            np.savez(tmp_path / f"{name}.npz", x=np.zeros(3), site=np.array("s"))
        (tmp_path / "b.npz").write_bytes(b"")
        (fault,) = faults("arrays", {"path": ".", "metadata": ["site"]}, tmp_path)
        assert (fault.where, "b.npz is empty" in fault.reason) == ("b.npz", True)
        items = list(open_source("arrays", {"path": "."}, tmp_path).items())
        assert isinstance(items[1], Item)
        with pytest.raises(DataError, match=r"b\.npz is empty"):
            items[1].read()


class TestTables:
    @pytest.fixture
    def data(self) -> pa.Table:
        rows = range(60)
        return pa.table({"id": [f"r{i}" for i in rows], "x": [[float(i), 1.0] for i in rows], "n": list(rows)})

    def test_any_truncated_parquet(self, data: pa.Table, tmp_path: Path) -> None:
        parquet.write_table(data, tmp_path / "whole.parquet")
        whole = (tmp_path / "whole.parquet").read_bytes()
        for size in [0, 3, 4, *range(8, len(whole), len(whole) // 20)]:
            (tmp_path / "a.parquet").write_bytes(whole[:size])
            refused(
                "parquet",
                {"path": "a.parquet"},
                tmp_path,
                "a.parquet is not a readable Parquet file .*(empty|truncated)",
            )
        # In the middle of a folder the file is named too: what it held is unknown, so that no Fault may stand for it.
        parquet.write_table(data, tmp_path / "0.parquet")
        refused("parquet", {"path": "."}, tmp_path, "a.parquet is not a readable Parquet file")

    def test_damaged_parquet_pages(self, data: pa.Table, tmp_path: Path) -> None:
        parquet.write_table(data, tmp_path / "whole.parquet", use_dictionary=False)
        whole = (tmp_path / "whole.parquet").read_bytes()
        for place in range(4, len(whole) - 8, 29):
            changed = bytearray(whole)
            changed[place] ^= 0xFF
            (tmp_path / "a.parquet").write_bytes(changed)
            ours_or_none("parquet", "a.parquet", tmp_path)

    @pytest.mark.parametrize("open_", [pa.ipc.new_file, pa.ipc.new_stream])
    def test_damaged_arrow(self, open_: Any, data: pa.Table, tmp_path: Path) -> None:
        with open_(str(tmp_path / "whole.arrow"), data.schema) as writer:
            writer.write_table(data, max_chunksize=20)
        whole = (tmp_path / "whole.arrow").read_bytes()
        for size in [0, 3, *range(8, len(whole) // 2, len(whole) // 20)]:
            (tmp_path / "a.arrow").write_bytes(whole[:size])
            refused("arrow", {"path": "a.arrow"}, tmp_path, "a.arrow|no samples")
        for place in range(0, len(whole), 53):
            changed = bytearray(whole)
            changed[place] ^= 0xFF
            (tmp_path / "a.arrow").write_bytes(changed)
            ours_or_none("arrow", "a.arrow", tmp_path)

    def test_wrong_columns(self, data: pa.Table, tmp_path: Path) -> None:
        parquet.write_table(data, tmp_path / "a.parquet")
        for options, match in (
            ({"fields": ["y"]}, "a.parquet has no column 'y'; it has id, x, n"),
            ({"metadata": ["site"]}, "no column 'site'"),
            ({"id": "x"}, "column 'x' is a list<.*>, which cannot be metadata"),
            ({"fields": ["id"]}, "column 'id' is a string, which is neither"),
            ({"shapes": {"y": [2]}}, "shapes names 'y', which is not one of the fields x"),
            ({"shapes": {"x": ["2"]}}, "shapes.x.* must be an integer"),
        ):
            refused("parquet", {"path": "a.parquet", **options}, tmp_path, match, ConfigError)
        refused("parquet", {"path": "a.parquet", "shapes": {"x": [3, 2]}}, tmp_path, r"sample 'r0': 'x' holds 2 values")
        parquet.write_table(data.select(["id", "n"]), tmp_path / "b.parquet")
        refused("parquet", {"path": "b.parquet"}, tmp_path, r"no column of arrays .* it has id \(string\)", ConfigError)
        refused("parquet", {"path": "*.parquet"}, tmp_path, "b.parquet has no column 'x'")
        refused("arrow", {"path": "a.parquet"}, tmp_path, "a.parquet is not a readable Arrow file")

    @pytest.mark.parametrize("kind", ["parquet", "arrow"])
    def test_cells_that_cannot_be_read_cost_their_sample(self, kind: str, tmp_path: Path) -> None:
        data = pa.table(
            {
                "id": ["good", None, "null", "hole", "ragged", "good", "image"],
                "x": [[[1, 2], [3, 4]], [[1]], None, [[1, None]], [[1, 2], [3]], [[1]], [[1]]],
                "image": [b"", b"", b"", b"", b"", b"", b"no image"],
            }
        )
        (parquet.write_table if kind == "parquet" else feather.write_feather)(data, str(tmp_path / f"a.{kind}"))
        source = open_source(kind, {"path": f"a.{kind}", "fields": ["x"]}, tmp_path)
        found = list(source.items())
        assert [item.where for item in found if isinstance(item, Fault)] == [f"a.{kind}, row 1", "sample 'good'"]
        for item in found:
            if isinstance(item, Item) and item.record["id"] in ("null", "hole", "ragged"):
                with pytest.raises(DataError, match=f"sample '{item.record['id']}': 'x' .*(null|ragged)"):
                    item.read()

    def test_no_image_in_a_column_of_bytes(self, tmp_path: Path) -> None:
        cells = [
            {"bytes": b"no image", "path": None},
            {"bytes": None, "path": "/etc/passwd"},
            {"bytes": None, "path": None},
        ]
        parquet.write_table(pa.table({"image": cells}), tmp_path / "a.parquet")
        items = list(open_source("parquet", {"path": "a.parquet"}, tmp_path).items())
        for item, match in zip(
            items, ("not an image", "'/etc/passwd', which is no file of this data", "is null"), strict=True
        ):
            assert isinstance(item, Item)
            with pytest.raises(DataError, match=f"sample '{item.record['id']}': 'image'.*{match}"):
                item.read()

    def test_a_row_group_that_expands_without_end(self, tmp_path: Path) -> None:
        parquet.write_table(pa.table({"x": [[0] * 5000] * 500}), tmp_path / "a.parquet", compression="zstd")
        refused("parquet", {"path": "a.parquet", "expand_mb": 8}, tmp_path, "row group 0 expands to more than 8 MiB")

    def test_a_dataset_that_is_damaged(self, data: pa.Table, tmp_path: Path) -> None:
        parquet.write_table(data, tmp_path / "a.parquet")
        whole = (tmp_path / "a.parquet").read_bytes()
        (tmp_path / "a.parquet").write_bytes(whole[: len(whole) // 2])
        options = {"path": "parquet", "data_files": ["a.parquet"], "split": "train", "streaming": True}
        refused("datasets", options, tmp_path, "the dataset 'parquet' cannot be read")
        (tmp_path / "saved").mkdir()
        (tmp_path / "saved" / "state.json").write_text("{")
        refused("datasets", {"path": "saved"}, tmp_path, "the dataset 'saved' cannot be read")


GOOD = {"id": "good", "inputs": {"x": {"data": [1.0]}}}


class TestCapture:
    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            (b'{"id": "a"', "not JSON"),
            (b"[" * 100_000, "not JSON"),
            (b'{"id": "\xff"}', "not UTF-8"),
            (b"[1]", "a list, not an object"),
            (b'{"id": "a"}', 'no "inputs"'),
            (b'{"id": "a", "inputs": {}}', 'no "inputs"'),
            (b'{"inputs": {"x": {"data": 1}}}', "no 'id'"),
            (b'{"id": "a", "site": {"a": 1}, "inputs": {"x": {"data": 1}}}', "'site' is a dict, not text or a number"),
            (b'{"id": "a", "n": NaN, "inputs": {"x": {"data": 1}}}', "'n' is nan"),
            (b'{"id": "a", "n": 1' + b"0" * 5000 + b', "inputs": {"x": {"data": 1}}}', "not JSON"),
            (b'{"id": "a", "n": 1' + b"0" * 100 + b', "inputs": {"x": {"data": 1}}}', "bits"),
            (b'{"id": "\\ud800", "inputs": {"x": {"data": 1}}}', "not valid Unicode"),
            (b'{"id": "a", "inputs": "' + b"x" * (2 << 20) + b'"}', "longer than 1 MiB"),
        ],
        ids=lambda value: value[:30] if isinstance(value, bytes) else value,
    )
    @pytest.mark.parametrize("packed", [False, True])
    def test_a_bad_line_is_a_fault_with_its_number(
        self, packed: bool, line: bytes, reason: str, tmp_path: Path
    ) -> None:
        good = json.dumps(GOOD).encode()
        content = good + b"\n" + line + b"\n" + good.replace(b"good", b"last")
        name = "log.jsonl.gz" if packed else "log.jsonl"
        (tmp_path / name).write_bytes(gzip.compress(content) if packed else content)
        first, fault, last = open_source("jsonl", {"path": name, "line_mb": 1}, tmp_path).items()
        assert isinstance(fault, Fault)
        assert fault.where == f"{name}, line 2"
        assert reason in fault.reason
        for item in (first, last):
            assert isinstance(item, Item)
            np.testing.assert_array_equal(item.read()["x"], np.ones(1, np.float32))

    @pytest.mark.parametrize(
        ("value", "match"),
        [
            ({"path": "../secret.npy"}, "path '../secret.npy' leaves .*the log's folder"),
            ({"path": "/etc/passwd"}, "leaves"),
            ({"path": "link.npy"}, "leaves"),
            ({"path": "loop.npy"}, "input 'x': "),
            ({"path": "none.npy"}, "none.npy does not exist"),
            ({"path": "."}, "is no file"),
            ({"path": "a\0b"}, "path must be text"),
            ({"path": 3}, "path must be text"),
            ({"path": "pickled.npy"}, "pickled"),
            ({"path": "text.png"}, "is not an image"),
            ({"path": "a.npy", "data": [1]}, 'either "path" or "data"'),
            ({"data": [1], "dtpye": "int8"}, "unknown key 'dtpye'"),
            ([1, 2], 'an object with either "path" or "data"'),
            ({"data": [[1, 2], [3]]}, "inhomogeneous"),
            ({"data": ["a"]}, "no number"),
            ({"data": None}, "no number"),
            ({"data": [300], "dtype": "uint8"}, "out of bounds"),
            ({"data": [1.5], "dtype": "int8"}, "fractions"),
            ({"data": [1], "dtype": "object"}, "dtype must be one of"),
            ({"data": [1, 2, 3], "shape": [2, 2]}, "reshape"),
            ({"data": [1], "shape": [-1]}, "shape must be a list of sizes"),
            ({"data": "AAAA"}, "needs dtype and shape"),
            ({"data": "AA!A", "dtype": "int8", "shape": [3]}, "not base64"),
            ({"data": "AAAA", "dtype": "int8", "shape": [10**12]}, "has 3 bytes"),
        ],
    )
    def test_a_bad_input_costs_its_sample(self, value: Any, match: str, tmp_path: Path) -> None:
        logs = tmp_path / "logs"
        logs.mkdir()
        np.save(tmp_path / "secret.npy", np.zeros(3))
        (logs / "link.npy").symlink_to(tmp_path / "secret.npy")
        (logs / "loop.npy").symlink_to(logs / "loop.npy")
        np.save(logs / "pickled.npy", np.array([{}]), allow_pickle=True)
        (logs / "text.png").write_text("text")
        (logs / "log.jsonl").write_text(json.dumps({"id": "bad", "inputs": {"x": value}}))
        (item,) = open_source("jsonl", {"path": "logs/log.jsonl"}, tmp_path).items()
        assert isinstance(item, Item)
        with pytest.raises(DataError, match=match) as raised:
            item.read()
        assert "sample 'bad'" in str(raised.value) or ".npy" in str(raised.value)

    def test_a_log_that_changes_while_it_is_read(self, tmp_path: Path) -> None:
        (tmp_path / "log.jsonl").write_text(json.dumps(GOOD))
        (item,) = open_source("jsonl", {"path": "log.jsonl"}, tmp_path).items()
        (tmp_path / "log.jsonl").write_text(json.dumps({**GOOD, "id": "other"}))
        assert isinstance(item, Item)
        with pytest.raises(DataError, match="has changed while it was read"):
            item.read()

    def test_files_that_are_no_logs(self, tmp_path: Path) -> None:
        (tmp_path / "empty.jsonl").write_text("\n\n")
        refused("jsonl", {"path": "empty.jsonl"}, tmp_path, "holds no samples")
        packed = gzip.compress(json.dumps(GOOD).encode())
        for content in (b"no gzip", packed[:-10], b""):
            (tmp_path / "a.jsonl.gz").write_bytes(content)
            refused("jsonl", {"path": "a.jsonl.gz"}, tmp_path, "a.jsonl.gz.*truncated|holds no samples")
        (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b" " * (4 << 20)))
        refused("jsonl", {"path": "a.jsonl.gz", "expand_mb": 2}, tmp_path, "a.jsonl.gz expands to more than 2 MiB")


def test_samples_are_counted_once_and_named(tmp_path: Path) -> None:
    lines = [GOOD, GOOD, {**GOOD, "id": "other"}]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (fault,) = faults("jsonl", {"path": "log.jsonl"}, tmp_path)
    assert "two samples with id 'good'" in fault.reason
