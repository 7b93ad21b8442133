"""Run folders: runs/<study>/<time>-<hash>/, found again by the hash, so that a killed study goes on where it was."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter

from calib import files

_FORMAT = "calib-timings"
_HASH_LENGTH = 12


@dataclass(frozen=True, slots=True)
class RunFolder:
    """One run's files."""

    path: Path

    @property
    def created(self) -> str:
        """When the folder was made, ISO 8601 in UTC."""
        stamp = datetime.strptime(self.path.name.partition("-")[0], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        return stamp.isoformat()

    def candidate(self, name: str) -> Path:
        """Folder of one candidate."""
        return self.path / "candidates" / name

    @property
    def seconds(self) -> dict[str, float]:
        """Wall time of every stage that was run, in the order of the first run."""
        path = self.path / "timings.json"
        return dict(files.read_json(path, _FORMAT, 1)["stages"]) if path.exists() else {}

    @contextlib.contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Record how long a stage took; a stage that a rerun skips keeps its first time."""
        start = perf_counter()
        yield
        stages = [[name, seconds] for name, seconds in self.seconds.items() if name != stage]
        files.write_json(self.path / "timings.json", _FORMAT, 1, {"stages": [*stages, [stage, perf_counter() - start]]})


def open_run(root: Path, study: str, identity: str) -> RunFolder:
    """Return the newest run of this identity, or a new one.

    Temporary files that a killed run left in it are removed.
    """
    suffix = identity[:_HASH_LENGTH]
    known = sorted((root / study).glob(f"*-{suffix}")) if (root / study).is_dir() else []
    if known:
        for left in list(known[-1].rglob(".*.tmp")):  # one may lie in another
            shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)
        return RunFolder(known[-1])
    path = root / study / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{suffix}"
    files.make_folder(path)
    return RunFolder(path)
