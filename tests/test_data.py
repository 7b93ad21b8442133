"""Sample sets: exact on disk, whatever the batch."""

from pathlib import Path

import numpy as np
import pytest

from calib.data import noise, sets, writing
from calib.errors import DataError


def samples(count: int) -> list[tuple[str, dict[str, np.ndarray], dict[str, str | int]]]:
    draws = np.random.default_rng(5)
    shapes = [(3, 4), (3, 6), (3, 4, 1)]
    return [
        (f"s{i}", {"x": draws.normal(size=shapes[i % 3]).astype(np.float32), "ids": np.int64([i])}, {"n": i})
        for i in range(count)
    ]


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_every_sample_comes_once_in_batches_of_one_shape(size: int, tmp_path: Path) -> None:
    written = writing.write(tmp_path / "set", samples(200))
    by_position = {}
    for batch in written.batches(size):
        assert len(batch.ids) <= size
        for row, position in enumerate(batch.positions):
            by_position[position] = {name: array[row] for name, array in batch.inputs.items()}
    assert sorted(by_position) == list(range(200))
    for i, (_, inputs, _) in enumerate(samples(200)):
        assert sets.digest(by_position[i]) == sets.digest(inputs) == written.entries[i].sha256
        assert sets.digest(written.one(i)) == sets.digest(inputs)


def test_a_set_is_written_the_same_twice_and_read_back(tmp_path: Path) -> None:
    one, two = (writing.write(tmp_path / name, samples(150), {"recipe": "r", "target": "n"}) for name in "ab")
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert len(files) == 4
    assert all((tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes() for name in files)
    assert one.sha256 == two.sha256 == sets.read(tmp_path / "a").sha256
    assert sets.read(tmp_path / "a").entries == one.entries
    shuffled = writing.write(tmp_path / "c", samples(150)[::-1])
    assert shuffled.sha256 == one.sha256, "the identity of the data does not depend on its order"


def test_a_changed_shard_is_noticed(tmp_path: Path) -> None:
    writing.write(tmp_path / "set", samples(9))
    shard = tmp_path / "set" / "shard-00001.npz"
    arrays = dict(np.load(shard))
    arrays["x"][1, 0, 0] += 1
    np.savez_compressed(shard, **arrays)
    with pytest.raises(DataError, match="sample 's4' is not the one that the manifest lists"):
        list(sets.read(tmp_path / "set").batches(4))


def test_another_folder_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.txt").write_text("words")
    with pytest.raises(DataError, match="exists and is not a sample set"):
        writing.write(tmp_path / "precious", samples(3))
    assert (tmp_path / "precious" / "thesis.txt").exists()


def test_noise_has_the_shapes_and_ranges_and_not_the_values(tmp_path: Path) -> None:
    written = writing.write(tmp_path / "set", samples(30))
    control = noise.like(written)
    pairs = list(zip(written.batches(4), control.batches(4), strict=True))
    for real, made in pairs:
        assert made.ids == real.ids
        assert {k: (v.shape, v.dtype) for k, v in made.inputs.items()} == {
            k: (v.shape, v.dtype) for k, v in real.inputs.items()
        }
        assert not np.array_equal(made.inputs["x"], real.inputs["x"])
    values = np.concatenate([made.inputs["x"].ravel() for _, made in pairs])
    low, high = control.ranges["x"]
    assert low <= values.min() < 0 < values.max() <= high
    again = [batch.inputs["x"] for batch in noise.like(written).batches(3)]
    assert np.array_equal(
        np.concatenate([a.ravel() for a in again if a.ndim == 3]),
        np.concatenate([m.inputs["x"].ravel() for _, m in pairs if m.inputs["x"].ndim == 3]),
    )
