"""The example data set: that it can be trusted as evidence, and that it can be regenerated."""

import importlib.util
import io
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

FILE = Path(__file__).parents[1] / "datasets" / "lab_reports.py"
LINES, SEED = 40, 7


@pytest.fixture(scope="module")
def reports() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("lab_reports_under_test", FILE)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def folder(reports: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs") / "log"
    reports.production_log(LINES, SEED, str(folder))
    return folder


@pytest.fixture(scope="module")
def records(reports: ModuleType) -> list[dict[str, str]]:
    """Metadata of the full-size log, drawn without rendering it."""
    return [line.record() for line in reports.draw_lines(3000, 2026)]


def test_two_generations_hold_the_same_bytes(reports: ModuleType, folder: Path, tmp_path: Path) -> None:
    again = reports.production_log(LINES, SEED, str(tmp_path / "again"))
    first = reports.production_log(LINES, SEED, str(folder))
    assert first._data["image"][:] == again._data["image"][:]
    assert first.metadata() == again.metadata()


def test_a_shorter_log_is_the_beginning_of_a_longer_one(reports: ModuleType, folder: Path) -> None:
    short, long = list(reports.draw_lines(LINES, SEED)), list(reports.draw_lines(3 * LINES, SEED))
    assert [line.record() for line in short] == [line.record() for line in long[:LINES]]
    # Any line can be rendered by itself: its pixels do not depend on the lines before it.
    stored = reports.production_log(LINES, SEED, str(folder))._data[LINES - 1]["image"]
    assert reports.render(long[LINES - 1], SEED) == stored


def test_the_seed_changes_the_log(reports: ModuleType) -> None:
    one, other = ([line.text for line in reports.draw_lines(LINES, seed)] for seed in (1, 2))
    assert one != other


def test_ids_are_unique_and_fields_are_text(records: list[dict[str, str]]) -> None:
    assert len({record["id"] for record in records}) == len(records) == 3000
    assert {tuple(record) for record in records} == {("id", "document", "device", "site", "day", "text")}
    assert all(isinstance(value, str) and value for record in records for value in record.values())


def test_a_document_has_one_device_site_and_day(records: list[dict[str, str]]) -> None:
    documents: dict[str, set[tuple[str, ...]]] = {}
    for record in records:
        documents.setdefault(record["document"], set()).add((record["device"], record["site"], record["day"]))
    assert all(len(values) == 1 for values in documents.values())
    lengths = list(Counter(record["document"] for record in records).values())
    assert max(lengths) <= 20
    assert min(lengths[:-1]) >= 5  # the last may be cut short


def test_device_shares(records: list[dict[str, str]]) -> None:
    shares = {device: count / len(records) for device, count in Counter(r["device"] for r in records).items()}
    # About 240 documents share a device each, so a share of one half has a standard error of .03.
    assert shares == pytest.approx({"flatbed": 0.55, "fax": 0.20, "phone": 0.20, "thermal": 0.05}, abs=0.06)


def test_text_is_short_printable_ascii(records: list[dict[str, str]]) -> None:
    for text in (record["text"] for record in records):
        assert text.isascii()
        assert text.isprintable()
        assert 10 <= len(text) <= 34
        assert "{" not in text


def test_flags_agree_with_the_reference_range(reports: ModuleType, records: list[dict[str, str]]) -> None:
    flags = Counter[str]()
    for entry in reports.ANALYTES:
        name, unit, low, high = entry.rsplit(maxsplit=3)
        for text in (r["text"] for r in records if r["text"].startswith(f"{name} ") and f" {unit}" in r["text"]):
            value, flag = float(text.removeprefix(f"{name} ").split()[0]), text.split()[-1]
            expected = "H" if value > float(high) else "L" if value < float(low) else ""
            assert (flag if flag in "HL" else "") == expected, text
            flags[expected] += 1
    assert flags[""] > flags["H"] + flags["L"] > 100


def test_inputs_are_what_the_recognizer_takes(reports: ModuleType, folder: Path) -> None:
    source = reports.production_log(LINES, SEED, str(folder))
    assert len(source.metadata()) == LINES
    for index in range(LINES):
        (name, x), *rest = source.inputs(index).items()
        assert (name, rest) == ("x", [])
        assert x.dtype == np.float32
        assert x.shape[:2] == (3, 48)
        assert x.shape[2] in (160, 320, 480, 640)
        assert -1 <= x.min() < x.max() <= 1
        image = Image.open(io.BytesIO(source._data[index]["image"]))
        width = min(-(-48 * image.width // image.height), 640)
        assert 0 <= x.shape[2] - width < 160
        assert not x[..., width:].any()
        assert x[..., :width].any(axis=(0, 1)).all()


@pytest.mark.parametrize("device", ["flatbed", "fax", "phone", "thermal"])
def test_every_device_leaves_a_legible_grey_picture(reports: ModuleType, device: str) -> None:
    line = next(line for line in reports.draw_lines(3000, SEED) if line.page.device == device)
    image = Image.open(io.BytesIO(reports.render(line, SEED)))
    assert (image.format, image.mode) == ("PNG", "L")
    assert np.ptp(np.asarray(image)) > 60


def test_an_existing_folder_is_reused(reports: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(reports, "render")
    assert len(reports.production_log(LINES, SEED, str(folder)).metadata()) == LINES


def test_a_folder_of_another_size_is_refused(reports: ModuleType, folder: Path) -> None:
    with pytest.raises(ValueError, match=f"holds {LINES} lines"):
        reports.production_log(LINES + 1, SEED, str(folder))


def test_an_interrupted_generation_leaves_nothing(
    reports: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    for owner, name in ((reports, "render"), (os, "replace")):  # before anything is written, and after all of it
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(owner, name, interrupt)
            reports.production_log(3, SEED, str(tmp_path / "log"))
        assert list(tmp_path.iterdir()) == []
    assert len(reports.production_log(3, SEED, str(tmp_path / "log")).metadata()) == 3
