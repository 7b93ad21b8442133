"""What the interval of a difference costs: 10,000 paired resamples of 1,000 to 100,000 samples, in seconds and memory.

Each measurement is a process of its own; its memory is the peak beyond what the scores themselves take.

    python experiments/benchmarks/evidence.py --out reports/benchmark-evidence.json
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from calib import environment
from calib.evidence.difference import RESAMPLES, difference

SIZES = (1_000, 10_000, 100_000)
SCORES = ("accuracy", "CER", "CER of documents", "macro F1", "calibration error", "AUROC")


def terms(score: str, n: int) -> tuple[str, list[tuple[float, ...]], list[tuple[float, ...]], list[str] | None]:
    """Return the aggregate, FP32's and the model's terms, and the groups of n made-up samples."""
    rng = np.random.default_rng(0)
    one = np.ones(n)
    groups = None
    if score == "accuracy":
        was = rng.random(n) < 0.9
        pair = [(was, one), (was ^ (rng.random(n) < 0.03), one)]
        kind = "ratio"
    elif score.startswith("CER"):
        length, edits = rng.integers(3, 30, n), rng.poisson(0.3, n)
        pair = [(edits, length), (edits + (rng.random(n) < 0.2) * rng.poisson(1, n), length)]
        kind = "ratio"
        groups = [str(i // 8) for i in range(n)] if "documents" in score else None
    elif score == "macro F1":
        true = rng.integers(0, 10, n)
        was = np.where(rng.random(n) < 0.1, rng.integers(0, 10, n), true)
        pair = [(true, was), (true, np.where(rng.random(n) < 0.05, rng.integers(0, 10, n), was))]
        kind = "macro-f1"
    elif score == "calibration error":
        sure = rng.random(n)
        right = rng.random(n) < sure
        pair = [(sure, right), (np.clip(sure + rng.normal(0, 0.05, n), 0, 1), right)]
        kind = "ece"
    else:
        label = rng.random(n) < 0.3
        was = label + rng.normal(size=n)
        pair = [(label, was), (label, was + rng.normal(0, 0.2, n))]
        kind = "auroc"
    rows = [[tuple(map(float, row)) for row in zip(*columns, strict=True)] for columns in pair]
    return kind, rows[0], rows[1], groups


def measure(score: str, n: int) -> dict[str, object]:
    """Return the seconds and the memory of one difference; what is compiled is compiled before."""
    small = terms(score, 50)
    difference(*small)
    kind, was, now, groups = terms(score, n)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    found = difference(kind, was, now, groups)
    seconds = time.perf_counter() - start
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return {
        "score": score,
        "samples": n,
        "groups": found.groups,
        "seconds": round(seconds, 2),
        "memory_mib": round(memory, 1),
    }


def main() -> None:
    """Measure each score and size in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", nargs=2)
    chosen = parser.parse_args()
    if chosen.one:
        print(json.dumps(measure(chosen.one[0], int(chosen.one[1]))))
        return
    rows = []
    for score in SCORES:
        for n in SIZES:
            command = [sys.executable, __file__, "--one", score, str(n)]
            rows.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
            print(rows[-1], flush=True)
    document = {"resamples": RESAMPLES, "environment": environment.describe(), "rows": rows}
    chosen.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
