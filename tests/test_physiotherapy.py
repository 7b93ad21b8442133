"""The physiotherapy windows: read without running a pickle's code, cut right, and split by person."""

import importlib.util
import io
import os
import pickle
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from calib.data import building, recipe

ROOT = Path(__file__).parents[1]
RECIPE = ROOT / "datasets" / "physiotherapy.toml"


@pytest.fixture(scope="module")
def physiotherapy() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("physiotherapy_under_test", RECIPE.with_suffix(".py"))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def recordings(physiotherapy: ModuleType) -> dict[str, object]:
    return physiotherapy._recordings(physiotherapy._installed())


def test_the_recordings_are_those_that_seglearn_describes(recordings) -> None:
    assert recordings["X_labels"] == ["ax", "ay", "az", "wx", "wy", "wz"]
    assert len(recordings["X"]) == 140
    assert all(signal.shape[1] == 6 and np.isfinite(signal).all() for signal in recordings["X"])
    # Ten people, both sides, seven exercises: each once.
    assert len(set(zip(*(recordings[name].tolist() for name in ("subject", "side", "y")), strict=True))) == 140


def test_windows_are_cut_where_their_record_says(physiotherapy: ModuleType, recordings) -> None:
    source = physiotherapy.windows(200, 100)
    records = source.metadata()
    assert len({record["id"] for record in records}) == len(records) == 2229
    for index in (0, 1, 700, 2228):
        record, (name, x) = records[index], *source.inputs(index).items()
        signal = recordings["X"][record["series"]]
        assert (name, x.shape, x.dtype) == ("x", (6, 200), np.float32)
        assert np.array_equal(x.T, signal[record["start"] : record["start"] + 200].astype(np.float32))
        assert int(record["subject"]) == recordings["subject"][record["series"]]
        assert record["exercise"] == recordings["y_labels"][recordings["y"][record["series"]]]
        assert (record["side"] == "right") == (recordings["side"][record["series"]] == 1)
    assert Counter(record["start"] % 100 for record in records) == {0: 2229}
    assert all(len(recordings["X"][r["series"]]) >= r["start"] + 200 for r in records)
    assert len(physiotherapy.windows(200, 200).metadata()) == 1149  # without overlap


def test_the_recipe_holds_people_out(physiotherapy: ModuleType, tmp_path: Path) -> None:
    calibration, evaluation = building.build(RECIPE, tmp_path / "data")
    assert (len(calibration), len(evaluation)) == (256, 700)
    assert set(calibration.column("subject")) == {"01", "02", "03", "04", "05", "06"}
    assert set(evaluation.column("subject")) == {"07", "08", "09", "10"}
    assert len(set(evaluation.column("exercise"))) == 7
    x = np.concatenate([batch.inputs["x"] for batch in calibration.batches(64)])
    assert (x.shape, x.dtype) == ((256, 6, 200), np.float32)
    # Normalized as declared: about mean 0 and deviation 1 a channel, on these people.
    assert abs(x.mean(axis=(0, 2))).max() < 0.25
    assert abs(x.std(axis=(0, 2)) - 1).max() < 0.25


def test_the_declared_normalization_is_that_of_the_calibration_people(recordings) -> None:
    declared = recipe.load(RECIPE)
    people = [int(text) for text in declared.calibration.where["subject"]]
    signals = np.concatenate(
        [x for x, who in zip(recordings["X"], recordings["subject"], strict=True) if who in people]
    )
    assert declared.prepare["x"].mean == pytest.approx(signals.mean(axis=0), abs=1e-4)
    assert declared.prepare["x"].std == pytest.approx(signals.std(axis=0), abs=1e-4)


class _Runs:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("pwned",)


def test_a_pickle_that_names_anything_else_is_refused(physiotherapy: ModuleType, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(pickle.UnpicklingError, match="mkdir, which is not needed to rebuild arrays"):
        physiotherapy._Arrays(io.BytesIO(pickle.dumps(_Runs()))).load()
    assert list(tmp_path.iterdir()) == []


def test_another_file_is_refused_before_it_is_unpickled(physiotherapy: ModuleType, tmp_path, monkeypatch) -> None:
    content = bytearray(physiotherapy._installed().read_bytes())
    content[-1000] ^= 1
    path = tmp_path / "watch_dataset.npy"
    path.write_bytes(content)
    monkeypatch.setattr(physiotherapy, "_Arrays", None)
    with pytest.raises(ValueError, match=r"not the file of seglearn 1\.2\.5 .* install seglearn==1\.2\.5"):
        physiotherapy._recordings(path)


def test_without_the_package_the_message_says_what_to_install(physiotherapy: ModuleType, monkeypatch) -> None:
    monkeypatch.setattr(physiotherapy, "PACKAGE", "seglearn-that-nobody-has")
    with pytest.raises(ValueError, match=r"pip install --no-deps seglearn==1\.2\.5"):
        physiotherapy.windows()
