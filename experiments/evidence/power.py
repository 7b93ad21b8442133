"""How often does calib's interval show a margin with as many samples as `calib sample-size` says?

For right and wrong it is the sum of binomial probabilities of all numbers of broken and fixed samples that show it; those below
0.2 % are left out, so that the power is a little too low. With 1.5 n it is computed where n is below 200.

    python experiments/evidence/power.py --out reports/evidence-power
"""

from __future__ import annotations

import argparse
import json
import math
from functools import cache
from pathlib import Path

from scipy import stats

from calib import environment
from calib.evidence import planning
from calib.evidence.difference import difference

CASES = (
    (0.05, 0.02, 0.01), (0.06, 0.01, 0.01), (0.1, 0.05, 0.02), (0.05, 0.03, 0.02), (0.1, 0.1, 0.08), (0.1, 0.1, 0.05),
)  # fmt: skip
_SMALL = 2e-3
_COMPUTED = 200


@cache
def shown(n: int, broken: int, fixed: int, margin: float) -> bool:
    """Return whether the interval lies within the margin when so many of n samples break and are fixed."""
    was = [(1.0, 1.0)] * broken + [(0.0, 1.0)] * fixed + [(1.0, 1.0)] * (n - broken - fixed)
    now = [(0.0, 1.0)] * broken + [(1.0, 1.0)] * fixed + [(1.0, 1.0)] * (n - broken - fixed)
    interval = difference("ratio", was, now).interval
    return interval is not None and -interval.low <= margin


def power(n: int, margin: float, broken: float, fixed: float) -> float:
    """Return the probability that n samples show the margin, where samples break and are fixed with these probabilities."""
    total = 0.0
    for b in range(n):
        of_broken = stats.binom.pmf(b, n, broken)
        if of_broken < _SMALL:
            continue
        chances = {f: stats.binom.pmf(f, n - b, fixed / (1 - broken)) for f in range(n - b)}
        likely = [f for f, chance in chances.items() if chance >= _SMALL]
        low, high = 0, len(likely)  # the more are fixed, the more is shown
        while low < high:
            middle = (low + high) // 2
            if shown(n, b, likely[middle], margin):
                high = middle
            else:
                low = middle + 1
        total += of_broken * sum(chances[f] for f in likely[low:])
    return float(total)


def _cells(row: dict[str, float | None]) -> list[str]:
    more = row["shown_with_half_more"]
    given = [f"{row[key]:g}" for key in ("margin", "broken", "fixed", "asked", "n")]
    return [*given, f"{row['changes']:.1f}", f"{row['shown']:.2f}", "–" if more is None else f"{more:.2f}"]


def main() -> None:
    """Compute all cases, and write JSON and Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    rows = []
    for margin, broken, fixed in CASES:
        for asked in (0.8, 0.9):
            n = planning.of_flips(margin, broken, fixed, level=0.95, power=asked).asked.as_expected
            assert n is not None
            more = power(math.ceil(1.5 * n), margin, broken, fixed) if n < _COMPUTED else None
            rows.append(
                {"margin": margin, "broken": broken, "fixed": fixed, "asked": asked, "n": n,
                 "changes": n * (broken + fixed), "shown": power(n, margin, broken, fixed), "shown_with_half_more": more}
            )  # fmt: skip
            print(rows[-1], flush=True)
    document = {"environment": environment.describe(), "rows": rows}
    chosen.out.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")
    lines = ["| " + " | ".join(_cells(row)) + " |" for row in rows]
    chosen.out.with_suffix(".md").write_text(
        "# Does the number of samples do?\n\nHow often calib's interval shows the margin with the n that `calib sample-size` "
        "says (`python experiments/evidence/power.py --out\nreports/evidence-power`).\n\n"
        "| margin | broken | fixed | power asked | n | changes expected | shown | with 1.5 n |\n"
        "|--:|--:|--:|--:|--:|--:|--:|--:|\n" + "\n".join(lines) + "\n"
    )


if __name__ == "__main__":
    main()
