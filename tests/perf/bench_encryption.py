"""What encryption costs a turn: durable appends to a plain and to an encrypted store, in turns, in one process.

Each pair of rounds uses fresh stores in one folder, so that both see the same disk at the same moment.
"""

import json
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from localmem.store import Store
from localmem.store.encryption import Keys
from localmem.types import Turn

ROUNDS, TURNS = 11, 200
_START = datetime(2026, 3, 2, tzinfo=UTC)
_TEXT = "We moved the bees to the meadow behind the mill, and the first hive is already three frames strong. " * 2


def _milliseconds(folder: Path, keys: Keys | None) -> list[float]:
    """The time of each durable turn."""
    times = []
    with Store.open(folder, keys=keys) as store:
        journal = store.journal("ann", "evidence")
        for number in range(TURNS):
            turn = Turn(f"t{number}", "user", "User", f"{number} {_TEXT}", _START + timedelta(seconds=number))
            start = time.perf_counter()
            journal.add_turns("s1", [turn])
            times.append((time.perf_counter() - start) * 1000)
    return times


def main(root: Path | None) -> None:
    """Print the medians and the 95th percentiles, and the ratio of medians of each pair of rounds."""
    plain, encrypted, ratios = list[float](), list[float](), list[float]()
    for number in range(ROUNDS):
        with tempfile.TemporaryDirectory(dir=root) as name:
            folder = Path(name)
            keys = Keys.create(folder / "memory.keys", b"correct horse battery")
            (folder / "encrypted").mkdir()
            rounds = {
                is_sealed: _milliseconds(folder / ("encrypted" if is_sealed else "plain"), keys if is_sealed else None)
                for is_sealed in ([False, True] if number % 2 else [True, False])
            }
        plain += rounds[False]
        encrypted += rounds[True]
        ratios.append(statistics.median(rounds[True]) / statistics.median(rounds[False]))
    figures = {
        "turns": ROUNDS * TURNS,
        "plain_ms": _summary(plain),
        "encrypted_ms": _summary(encrypted),
        "ratio": {
            "median": round(statistics.median(ratios), 2),
            "rounds": [round(ratio, 2) for ratio in sorted(ratios)],
        },
    }
    print(json.dumps(figures, indent=2))


def _summary(times: list[float]) -> dict[str, float]:
    return {"p50": round(statistics.median(times), 2), "p95": round(statistics.quantiles(times, n=20)[18], 2)}


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
