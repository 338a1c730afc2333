"""How much of the evidence the memories hold that mem0's memory-benchmarks found: `mem0_results.py FOLDER LOCOMO.json`.

FOLDER is what its LoCoMo run wrote with `--predict-only`, which judges nothing.
"""

import json
import sys
from pathlib import Path
from typing import Any

RANKS = (5, 10, 50)


def main() -> None:
    """Print the mean share of a question's evidence turns among the first memories."""
    samples = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    sessions = [[part for part in sample["conversation"].values() if isinstance(part, list)] for sample in samples]
    texts = [{turn["dia_id"]: turn["text"] for session in each for turn in session} for each in sessions]
    shares = []
    for file in sorted(Path(sys.argv[1]).glob("conv*.json")):
        result: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        turns = texts[result["conversation_idx"]]
        memories = [found["memory"] for found in result["retrieval"]["search_results"]]
        evidence = [turns[name] for name in result["evidence"] if name in turns]
        if evidence:
            places = [next((n for n, memory in enumerate(memories) if text in memory), RANKS[-1]) for text in evidence]
            shares.append([sum(place < rank for place in places) / len(evidence) for rank in RANKS])
    means = [sum(share) / len(shares) for share in zip(*shares, strict=True)]
    listed = ", ".join(f"{mean:.3f} @{rank}" for mean, rank in zip(means, RANKS, strict=True))
    sys.stdout.write(f"{len(shares)} questions: {listed}\n")


if __name__ == "__main__":
    main()
