"""The same small data in every form that a source reads: vectors of four numbers, or pictures, with columns."""

import base64
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

VECTORS = ("arrays", "parquet", "jsonl", "datasets")
COLUMNS = ("device", "document", "label", "day")


def vector(i: int, gain: float = 1) -> np.ndarray:
    return gain * np.random.default_rng(i).normal(0, 1, 4).astype(np.float32)


def columns(i: int) -> dict[str, str | int]:
    return {
        "device": "fax" if i % 4 == 0 else "phone",
        "document": f"d{i // 2}",
        "label": str(i % 2),
        "day": f"2026-03-{i % 28 + 1:02d}",
    }


def log(path: Path, numbers: Sequence[int], *, gain: float = 1, prefix: str = "s") -> Path:
    """Write a capture log."""
    with path.open("w", encoding="utf-8") as lines:
        for i in numbers:
            data = base64.b64encode(vector(i, gain).tobytes()).decode()
            inputs = {"x": {"data": data, "dtype": "float32", "shape": [4]}}
            lines.write(json.dumps({"id": f"{prefix}{i}", **columns(i), "inputs": inputs}) + "\n")
    return path


def write(source: str, folder: Path, count: int) -> str:
    """Write `count` samples; return what a recipe says of them: source and options."""
    return f'source = "{source}"\noptions = {{{_WRITERS[source](folder, count)}}}\n'


def _arrays(folder: Path, count: int) -> str:
    rows = [columns(i) for i in range(count)]
    np.savez(
        folder / "x.npz",
        x=np.stack([vector(i) for i in range(count)]),
        name=np.array([f"s{i}" for i in range(count)]),
        **{column: np.array([row[column] for row in rows]) for column in COLUMNS},
    )
    return f'path = "x.npz", id = "name", metadata = {json.dumps(COLUMNS)}'


def _table(count: int) -> dict[str, list[object]]:
    rows = [{"id": f"s{i}", "x": vector(i).tolist(), **columns(i)} for i in range(count)]
    return {key: [row[key] for row in rows] for key in rows[0]}


def _parquet(folder: Path, count: int) -> str:
    import pyarrow as pa
    import pyarrow.parquet

    schema = pa.schema([("id", pa.string()), ("x", pa.list_(pa.float32())), *((name, pa.string()) for name in COLUMNS)])
    pyarrow.parquet.write_table(pa.table(_table(count), schema), folder / "x.parquet")
    return 'path = "x.parquet"'


def _jsonl(folder: Path, count: int) -> str:
    log(folder / "x.jsonl", range(count))
    return 'path = "x.jsonl"'


def _datasets(folder: Path, count: int) -> str:
    import datasets

    features = {"id": datasets.Value("string"), "x": datasets.List(datasets.Value("float32"))}
    features |= {name: datasets.Value("string") for name in COLUMNS}
    datasets.Dataset.from_dict(_table(count), datasets.Features(features)).save_to_disk(folder / "saved")
    return 'path = "saved"'


def _images(folder: Path, count: int) -> str:
    lines = [",".join(("path", *COLUMNS))]
    (folder / "pages").mkdir()
    for i in range(count):
        pixels = np.random.default_rng(i).integers(0, 256, (10, 12, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "pages" / f"s{i}.png")
        lines.append(",".join((f"s{i}.png", *map(str, columns(i).values()))))
    (folder / "pages.csv").write_text("\n".join(lines) + "\n")
    return 'folder = "pages", metadata = "pages.csv"'


def _dicom(folder: Path, count: int) -> str:
    from .test_dicom import made, save

    for i in range(count):
        pixels = np.random.default_rng(i).integers(0, 2000, (10, 12)).astype(np.int16)
        save(folder / "scans" / f"{i}.dcm", made(pixels, PatientID=f"patient {i // 2}"))
    return 'folder = "scans", window = [1000, 2000]'


_WRITERS: dict[str, Callable[[Path, int], str]] = {
    "arrays": _arrays,
    "parquet": _parquet,
    "jsonl": _jsonl,
    "datasets": _datasets,
    "images": _images,
    "dicom": _dicom,
}
