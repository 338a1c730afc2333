"""Operation pairs out of one user's conversations, labelled by an LLM whose probabilities are kept (for distillation).

The sessions are summarised in turn, as CareCall does at their end; every new sentence is compared with all that are
remembered by then, and the memory goes on as the labels say (Keep Me Updated, Algorithm 1). Knows no model, no store.

A pair's group is the session that brought the new sentence. A remembered sentence may come back in later groups, so
divide such pairs by file, not by group, where figures must be strict.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypedDict

from localmem.evaluation.datasets.labelled_pairs import read_operations
from localmem.classification.llm_classifier import LLMClassifier
from localmem.errors import BadInput
from localmem.llm.base import LLM
from localmem.systems.carecall.operations import remaining, update
from localmem.text.base import OPERATIONS, Labelled
from localmem.text.summarize import Summarizer
from localmem.types import Session

Progress = Callable[[str, int, int], None]
Pair = tuple[str, str]


class _Done(TypedDict):
    """A session that is done: the memory after it, and how long the file of pairs was then."""

    session: str
    memory: list[str]
    bytes: int


def label(
    llm: LLM, sessions: Sequence[Session], out: Path, *, resume: bool = False, progress: Progress = lambda *_: None
) -> dict[str, int]:
    """Appends the pairs of each session to `out` as it is done, and returns how many there are of each label.

    A line is memory, summary, label, group and probabilities, as `read_operations` takes it. Beside it a second file
    says which sessions are done, so that `resume` goes on after the last whole one. Raises BadInput.
    """
    state = out.with_name(f"{out.name}.progress")
    if out.exists() and not resume:
        raise BadInput(f"{out} exists; go on with --resume, or give another --out")
    done = _done(state, out, sessions)
    memory = done[-1]["memory"] if done else []
    summarize, classifier = Summarizer(llm, prompt="carecall/summarize"), LLMClassifier(llm)
    progress("labelling sessions", len(done), len(sessions))
    for number, session in enumerate(sessions[len(done) :], start=len(done) + 1):
        new = [text for text in _sentences(summarize, session) if text not in memory]
        pairs = [(old, text) for old in memory for text in new]
        labels = dict(zip(pairs, classifier.classify(pairs), strict=True))
        memory = _after(memory, new, labels)
        _append(out, "".join(_line(pair, said, session.id) for pair, said in labels.items()))
        finished = _Done(session=session.id, memory=memory, bytes=out.stat().st_size)
        _append(state, json.dumps(finished, ensure_ascii=False) + "\n")
        progress("labelling sessions", number, len(sessions))
    found = [pair.label for pair in read_operations(out).pairs] if out.stat().st_size else []
    return {name: found.count(name) for name in OPERATIONS}


def _done(state: Path, out: Path, sessions: Sequence[Session]) -> list[_Done]:
    """The sessions that are done; what was written of one that is not is cut off."""
    lines = state.read_text(encoding="utf-8").splitlines() if state.is_file() and out.is_file() else []
    done: list[_Done] = [json.loads(line) for line in lines]
    if [one["session"] for one in done] != [session.id for session in sessions[: len(done)]]:
        raise BadInput(f"{state} tells of other conversations; give those, or another --out")
    if out.is_file():
        with out.open("r+b") as file:
            file.truncate(done[-1]["bytes"] if done else 0)
    return done


def _sentences(summarize: Summarizer, session: Session) -> list[str]:
    about = next((turn.speaker for turn in session.turns if turn.role == "user"), "")
    return summarize.each(session.turns, [{"about": about}])[0] if about else []


def _after(memory: Sequence[str], new: Sequence[str], labels: dict[Pair, Labelled]) -> list[str]:
    return remaining(update(memory, new, {pair: said.operation for pair, said in labels.items()}))


def _line(pair: Pair, said: Labelled, group: str) -> str:
    memory, summary = pair
    probabilities = {name: round(value, 6) for name, value in said.probabilities.items()}
    record = {
        "memory": memory,
        "summary": summary,
        "label": said.operation,
        "group": group,
        "probabilities": probabilities,
    }
    return json.dumps(record, ensure_ascii=False) + "\n"


def _append(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(text)
