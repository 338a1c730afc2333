"""Operation pairs from one user's conversations, labelled by an LLM with probabilities, for distillation.

The sessions are summarised in order, as CareCall does at their end. Each new sentence is compared with all remembered
ones, and the memory changes as the labels say (Keep Me Updated, Algorithm 1).

The group of a pair is the session of its new sentence. A remembered sentence may occur in later groups, too, so divide
such pairs by file rather than by group where figures must be strict.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from localmem.classification import OPERATIONS, LLMClassifier, OperationLabel
from localmem.errors import BadInput
from localmem.evaluation.datasets.labelled_pairs import read_operations
from localmem.files import JsonlLog
from localmem.llm.base import LLM
from localmem.systems.carecall.memory_update import remaining, update
from localmem.text.summarize import Summarizer
from localmem.types import Session

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class _FinishedSession:
    """A finished session: the memory after it, and the length of the file of pairs at that point."""

    session: str
    memory: list[str]
    bytes: int


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
    if not out.exists():
        log_path.unlink(missing_ok=True)
    summarizer, classifier = Summarizer(llm, prompt="carecall/summarize"), LLMClassifier(llm)
    with JsonlLog(log_path, TypeAdapter(_FinishedSession)) as log:
        memory, finished = _restore(log, out, sessions)
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
            log.append(_FinishedSession(session.id, memory, out.stat().st_size))
            progress("labelling sessions", number, len(sessions))
    names = [pair.label for pair in read_operations(out).pairs] if out.stat().st_size else []
    return {name: names.count(name) for name in OPERATIONS}


def _restore(log: JsonlLog[_FinishedSession], out: Path, sessions: Sequence[Session]) -> tuple[list[str], int]:
    """The memory after the finished sessions, and their number; pairs of an unfinished session are cut off."""
    finished = log.records
    if [record.session for record in finished] != [session.id for session in sessions[: len(finished)]]:
        raise BadInput(f"{out} holds labels of other conversations; use those, or choose another --out")
    with out.open("ab") as file:
        file.truncate(finished[-1].bytes if finished else 0)
    return (finished[-1].memory if finished else []), len(finished)


def _line(pair: tuple[str, str], label: OperationLabel, group: str) -> str:
    record = {"memory": pair[0], "summary": pair[1], "label": label.operation, "group": group}
    probabilities = {name: round(value, 6) for name, value in label.probabilities.items()}
    return json.dumps({**record, "probabilities": probabilities}, ensure_ascii=False) + "\n"
