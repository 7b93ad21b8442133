"""Duplicates across two sets: the same sample again, altered a little; and nothing that only is of the same kind."""

import importlib.util
import io
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from calib.data import sets
from calib.data.writing import write
from calib.errors import ConfigError, DataError
from calib.quality.duplicates import duplicates

ROOT = Path(__file__).parents[1]


def made(folder: Path, name: str, prefix: str, *inputs: dict[str, np.ndarray]) -> sets.SampleSet:
    return write(folder / name, ((f"{prefix}{i:03d}", sample, {}) for i, sample in enumerate(inputs)))


def pictures(folder: Path, name: str, prefix: str, arrays) -> sets.SampleSet:
    return made(folder, name, prefix, *({"x": np.asarray(array, np.float32)} for array in arrays))


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[np.ndarray]:
    spec = importlib.util.spec_from_file_location("lab_reports", ROOT / "datasets/lab_reports.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    log = module.production_log(240, 7, str(tmp_path_factory.mktemp("log") / "lines"))
    return [log.inputs(i)["x"] for i in range(240)]


def jpeg(line: np.ndarray) -> np.ndarray:
    buffer = io.BytesIO()
    Image.fromarray(np.uint8(np.clip(line.transpose(1, 2, 0) * 127.5 + 128, 0, 255))).save(buffer, "JPEG", quality=50)
    return np.asarray(Image.open(buffer), np.float32).transpose(2, 0, 1) / 127.5 - 1


def wider(line: np.ndarray) -> np.ndarray:
    end = int(np.flatnonzero(np.abs(line).max((0, 1)))[-1]) + 1
    channel = [Image.fromarray(part[:, :end]).resize((end + 4, len(part)), Image.Resampling.BILINEAR) for part in line]
    result = np.zeros_like(line)
    result[:, :, : end + 4] = np.stack([np.asarray(part) for part in channel])[:, :, : line.shape[2]]
    return result


ALTERED = {
    "jpeg": jpeg,
    "wider": wider,
    "brightness and contrast": lambda line: line * 0.7 + 0.1,
    "noise": lambda line: line + np.random.default_rng(0).normal(0, 0.05, line.shape),
    "one pixel right": lambda line: np.roll(line, 1, 2),
    "one pixel down": lambda line: np.roll(line, 1, 1),
}


@pytest.mark.parametrize("how", ALTERED)
def test_an_altered_line_is_found_and_named(how: str, lines: list[np.ndarray], tmp_path: Path) -> None:
    calibration = pictures(tmp_path, "one", "c", lines[:120])
    again = pictures(tmp_path, "other", "o", [ALTERED[how](line) for line in lines[:60]])
    found = duplicates(calibration, again, name="evaluation")
    assert found.exact == 0 and found.near >= 58
    assert sum(pair.calibration[1:] == pair.other[1:] for pair in found.pairs) >= found.near - 1


def test_other_lines_of_the_same_kind_are_not_near(lines: list[np.ndarray], tmp_path: Path) -> None:
    one, other = pictures(tmp_path, "one", "c", lines[:120]), pictures(tmp_path, "other", "o", lines[120:])
    found = duplicates(one, other, name="evaluation")
    assert found.exact == 0 and found.near <= 2  # of 14,400 pairs


def test_equal_samples_are_exact_and_counted_beyond_the_list(lines: list[np.ndarray], tmp_path: Path) -> None:
    one = pictures(tmp_path, "one", "c", lines[:150])
    found = duplicates(one, pictures(tmp_path, "other", "o", [*lines[:120], jpeg(lines[130])]), name="evaluation")
    assert found.exact >= 120 and found.near == 1 and len(found.pairs) == 100
    assert all(pair.kind == "exact" and pair.similarity == 1 for pair in found.pairs)


def test_the_order_of_samples_does_not_matter(lines: list[np.ndarray], tmp_path: Path) -> None:
    one = pictures(tmp_path, "one", "c", lines[:60])
    other = pictures(tmp_path, "other", "o", [jpeg(line) for line in lines[:9]])
    turned = replace(one, entries=one.entries[::-1]), replace(other, entries=other.entries[::-1])
    assert duplicates(one, other, name="o") == duplicates(*turned, name="o")


@pytest.mark.parametrize("shape", [(6, 100), (100, 6), (1, 1000), (4000,)], ids=str)
def test_signals(shape: tuple[int, ...], tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    axis = int(np.argmax(shape))
    walk = np.cumsum(rng.normal(size=(160, *shape)), axis + 1)
    walk += 50 * rng.normal(size=shape).cumsum(axis)  # what all windows share says nothing
    one = pictures(tmp_path, "one", "c", walk[:100])
    noise = rng.normal(size=(30, *shape)) * 0.05  # of a step
    again = pictures(tmp_path, "again", "a", 1.2 * (walk[:30] + noise))
    assert duplicates(one, pictures(tmp_path, "other", "o", walk[100:]), name="o").near == 0
    found = duplicates(one, again, name="a")
    assert found.near >= 28 and all(pair.calibration[1:] == pair.other[1:] for pair in found.pairs)


def texts(ids: np.ndarray) -> list[dict[str, np.ndarray]]:
    length = ids.shape[1]
    return [{"ids": row, "mask": np.ones(length, np.int64), "position": np.arange(length)} for row in ids]


def test_token_ids(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    ids = rng.integers(0, 30000, (60, 64))
    ids[:, :20] = ids[0, :20]  # all begin alike; masks and positions are alike in all
    one = made(tmp_path, "one", "c", *texts(ids[:40]))
    changed = ids[:10].copy()
    changed[:, 30] = 7
    found = duplicates(one, made(tmp_path, "again", "a", *texts(changed)), name="a")
    assert found.near == 10 and all(pair.calibration[1:] == pair.other[1:] for pair in found.pairs)
    assert duplicates(one, made(tmp_path, "other", "o", *texts(ids[40:])), name="o").near == 0


def test_every_input_must_be_near(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    left, right = (rng.normal(size=(40, 3, 32, 32)).astype(np.float32) for _ in range(2))
    one = made(tmp_path, "one", "c", *({"a": a, "b": b} for a, b in zip(left, right, strict=True)))
    half = ({"a": a * 1.1, "b": b} for a, b in zip(left[:5], right[5:10], strict=True))
    both = ({"a": a * 1.1, "b": b} for a, b in zip(left[:5], right[:5], strict=True))
    assert duplicates(one, made(tmp_path, "half", "o", *half), name="o").near == 0
    assert duplicates(one, made(tmp_path, "both", "o", *both), name="o").near == 5


def test_blank_samples_are_exact_or_nothing(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    blank = [np.full((3, 32, 32), value) for value in (0.1, 0.2, 0.3)]
    one = pictures(tmp_path, "one", "c", [*rng.normal(size=(30, 3, 32, 32)), *blank])
    found = duplicates(one, pictures(tmp_path, "other", "o", [blank[0], np.full((3, 32, 32), 0.15)]), name="o")
    assert (found.exact, found.near) == (1, 0)
    small = made(tmp_path, "small", "c", *({"x": np.float32([i, 1])} for i in range(4)))
    found = duplicates(small, made(tmp_path, "small other", "o", {"x": np.float32([0, 1.001])}), name="o")
    assert found.near == 0 and "every input is too small" in found.method


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    one = pictures(tmp_path, "one", "c", np.random.default_rng(0).normal(size=(4, 3, 32, 32)))
    other = made(tmp_path, "other", "o", {"y": np.ones((3, 32, 32), np.float32)})
    with pytest.raises(DataError, match="'o000': input 'x' is missing"):
        duplicates(one, other, name="log")
    with pytest.raises(ConfigError, match="near must be between 0 and"):
        duplicates(one, one, near=0.5, name="log")
