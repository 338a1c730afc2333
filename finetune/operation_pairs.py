"""Pairs of sentences with an operation each: divided into training and held-out parts, or labelled by an LLM.

A division is by group, stratified by label and seeded. To distil a teacher, one user's sessions are summarised in
order, as CareCall does at their end; each new sentence is compared with all remembered ones, and the memory changes as
the labels say (Keep Me Updated, Algorithm 1). The group of such a pair is the session of its new sentence. A remembered
sentence may occur in later groups, too, so divide these pairs by file where figures must be strict.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter

from localmem.classification import OPERATIONS, LLMClassifier, OperationLabel
from localmem.errors import BadInput, requires
from localmem.evaluation.datasets.labelled_pairs import LabelledPair, read_operations
from localmem.files import JsonlLog
from localmem.llm.base import LLM
from localmem.summaries.summarize import Summarizer
from localmem.systems.carecall.memory_update import remaining, update
from localmem.types import Session


class Fold(NamedTuple):
    """Training and held-out pairs, each in data order; no group is on both sides."""

    train: list[LabelledPair]
    held_out: list[LabelledPair]


def make_folds(pairs: Sequence[LabelledPair], count: int, seed: int) -> list[Fold]:
    """Folds for cross-validation: every pair is held out once, and each part has about the same share of each label.

    Raises BadInput if a label occurs in fewer than `count` groups, because some part would have none of it.
    """
    if count < 2:
        raise BadInput(f"cannot make {count} folds; use 2 or more")
    if not pairs:
        raise BadInput("there are no pairs to divide; use a file that holds some")
    by_label: dict[str, set[str]] = {}
    for pair in pairs:
        by_label.setdefault(pair.label, set()).add(pair.group)
    rarest = min(by_label, key=lambda label: len(by_label[label]))
    if (fewest := len(by_label[rarest])) < count:
        raise BadInput(f"{rarest} occurs in {fewest} groups, too few for {count} parts; use fewer parts or more data")
    with requires("folds need scikit-learn", "train"):
        from sklearn.model_selection import StratifiedGroupKFold
    splitter = StratifiedGroupKFold(count, shuffle=True, random_state=seed)
    labels, groups = [pair.label for pair in pairs], [pair.group for pair in pairs]
    return [
        Fold([pairs[index] for index in train], [pairs[index] for index in held_out])
        for train, held_out in splitter.split(pairs, labels, groups)
    ]


def hold_out(pairs: Sequence[LabelledPair], share: float, seed: int) -> Fold:
    """Hold out about `share` of the pairs: the first of 1/share folds. Raises BadInput as `make_folds` does."""
    if not 0 < share <= 0.5:
        raise BadInput(f"the held-out share is {share}; use more than 0 and at most 0.5")
    return make_folds(pairs, round(1 / share), seed)[0]


Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class _FinishedSession:
    """A finished session: the memory after it, the length of the file of pairs at that point, and who labelled it.

    An earlier version did not note the model.
    """

    session: str
    memory: list[str]
    bytes: int
    model: str = ""


def label_operations(
    llm: LLM, sessions: Sequence[Session], out: Path, *, resume: bool = False, progress: Progress = lambda *_: None
) -> dict[str, int]:
    """Append the pairs of each session to `out` when it is finished; return the number of pairs for each label.

    A line holds memory, summary, label, group and probabilities, as `read_operations` reads it. A second file beside it
    records the finished sessions, so that `resume` continues after the last complete one. Raises BadInput.
    """
    if out.exists() and not resume:
        raise BadInput(f"{out} exists; use --resume, or choose another --out")
    log_path = out.with_name(f"{out.name}.progress")
    if resume and (missing := [path for path in (out, log_path) if not path.is_file()]):
        files = " and no ".join(map(str, missing))
        raise BadInput(f"there is no {files}, so nothing to continue; leave out --resume, or give an interrupted --out")
    if not out.exists():
        log_path.unlink(missing_ok=True)
    summarizer, classifier = Summarizer(llm, prompt="carecall/summarize"), LLMClassifier(llm)
    with JsonlLog(log_path, TypeAdapter(_FinishedSession)) as log:
        memory, finished = _restore(log, out, sessions, llm.name)
        progress("labelling sessions", finished, len(sessions))
        for number, session in enumerate(sessions[finished:], start=finished + 1):
            about = next((turn.speaker for turn in session.turns if turn.role == "user"), "")
            summary = summarizer.each(session.turns, [{"about": about}])[0] if about else []
            new = [text for text in summary if text not in memory]
            pairs = [(old, text) for old in memory for text in new]
            labels = dict(zip(pairs, classifier.classify(pairs), strict=True))
            fates = update(memory, new, {pair: label.operation for pair, label in labels.items()})
            memory = remaining(fates)
            with out.open("a", encoding="utf-8") as file:
                file.write("".join(_line(pair, label, session.id) for pair, label in labels.items()))
            log.append(_FinishedSession(session.id, memory, out.stat().st_size, llm.name))
            progress("labelling sessions", number, len(sessions))
    names = [pair.label for pair in read_operations(out).pairs] if out.stat().st_size else []
    return {name: names.count(name) for name in OPERATIONS}


def _restore(
    log: JsonlLog[_FinishedSession], out: Path, sessions: Sequence[Session], model: str
) -> tuple[list[str], int]:
    """The memory after the finished sessions, and their number; pairs of an unfinished session are cut off."""
    finished = log.records
    if [record.session for record in finished] != [session.id for session in sessions[: len(finished)]]:
        raise BadInput(f"{out} holds labels of other conversations; use those, or choose another --out")
    if finished and finished[-1].model not in ("", model):
        raise BadInput(
            f"{out} was labelled by {finished[-1].model}, now {model}; use the first, or choose another --out"
        )
    with out.open("ab") as file:
        file.truncate(finished[-1].bytes if finished else 0)
    return (finished[-1].memory if finished else []), len(finished)


def _line(pair: tuple[str, str], label: OperationLabel, group: str) -> str:
    record = {"memory": pair[0], "summary": pair[1], "label": label.operation, "group": group}
    probabilities = {name: round(value, 6) for name, value in label.probabilities.items()}
    return json.dumps({**record, "probabilities": probabilities}, ensure_ascii=False) + "\n"
