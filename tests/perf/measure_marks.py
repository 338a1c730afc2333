"""How far the pair classifier can tell a sentence of a reply that no shown memory supports. Prints a table.

`python -m tests.perf.measure_marks SCENARIOS AUTHORS`: of each probe the written reply is supported by its evidence,
and the reply to another probe of this person is not. A sentence is taken for supported as far as its likeliest pair
with a sentence of the memory is a PASS: it says nothing new. Shown are the evidence and four other turns of the user.
"""

import json
import sys
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from localmem.classification.pair_classifier import PairModel
from localmem.resources import resource
from localmem.turns.utterances import split_sentences

_SHOWN, _SENTENCES, _MOST = 4, 25, 400  # other turns; sentences of memory, and of replies, that are looked at
Row = tuple[bool, str, list[str]]


def rows_of(scenario: dict[str, Any], random: Random) -> list[Row]:
    """Whether a sentence of a reply is unsupported, the sentence, and the memory beside it."""
    turns = {
        (at, place): turn["content"]
        for at, session in enumerate(scenario["sessions"])
        for place, turn in enumerate(session["turns"])
    }
    users = [turn["content"] for session in scenario["sessions"] for turn in session["turns"] if turn["role"] == "user"]
    probes = [probe for probe in scenario["probes"] if probe.get("evidence") and probe.get("reply")]
    rows = list[Row]()
    for probe in probes:
        places = set(map(tuple, probe["evidence"]))
        shown = [turns[place] for place in sorted(places) if place in turns] + random.sample(users, _SHOWN)
        memory = [sentence for text in shown for sentence in split_sentences(text)][:_SENTENCES]
        others = [other for other in probes if not places & set(map(tuple, other["evidence"]))]
        replies = [(False, probe["reply"]), *((True, other["reply"]) for other in random.sample(others, bool(others)))]
        for unsupported, reply in replies:
            sentences = [each for each in split_sentences(reply) if len(each.split()) >= 4 and each[-1] != "?"]
            rows += [(unsupported, sentence, memory) for sentence in sentences]
    return rows


def main() -> None:
    """Measure and print."""
    folder, authors, random = Path(sys.argv[1]), sys.argv[2], Random(0)
    scenarios = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))]
    rows = [row for each in scenarios if each["id"][0] in authors for row in rows_of(each, random)]
    random.shuffle(rows)
    rows = rows[:_MOST]
    model = PairModel(resource("models/parts/minilm-l6-v2-operations"), device="cpu")
    passes = model.probabilities([(old, new) for _, new, memory in rows for old in memory])
    passes = passes[:, list(model.labels).index("PASS")]
    ends = np.cumsum([len(memory) for _, _, memory in rows])
    score = 1 - np.array([part.max() for part in np.split(passes, ends[:-1])])
    wrong = np.array([unsupported for unsupported, _, _ in rows])
    area = (score[wrong][:, None] > score[~wrong][None]).mean()
    print(f"{len(rows)} sentences, {int(wrong.sum())} unsupported; area under the curve {area:.3f}")
    print("| marked | of the unsupported | of the supported | precision if one in five is unsupported |")
    print("|---|---|---|---|")
    for share in (0.3, 0.2, 0.1, 0.05):
        marked = score >= np.quantile(score, 1 - share)
        hits, false = marked[wrong].mean(), marked[~wrong].mean()
        print(f"| {share:.0%} | {hits:.0%} | {false:.0%} | {hits / (hits + 4 * false):.2f} |")


if __name__ == "__main__":
    main()
