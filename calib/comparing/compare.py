"""The comparison of two runs."""

from __future__ import annotations

from pathlib import Path

from calib.comparing import loading, scores, settings
from calib.comparing.result import Comparison


def compare(before: Path, after: Path) -> Comparison:
    """Return what changed between two finished runs, and whether their best candidates differ on the samples of both.

    Args:
        before: run folder.
        after: run folder.

    Raises:
        DataError: a run is not finished, or a file of it is damaged; the message names the file.
    """
    one, two = loading.load(before), loading.load(after)
    return Comparison(
        str(before),
        str(after),
        settings.changes(one, two),
        settings.layers(one, two),
        settings.scales(one, two),
        scores.compare(one, two),
    )
