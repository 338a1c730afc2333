"""Human labels as traces of a stage: dialogues divided into segments, and ATOMIC's relations between events.

The prompts are those of the product's own parts: each part runs with a scripted LLM that answers with the label, and
its first prompt is recorded. Does not use any model.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from finetune.traces.trace import Teacher, Trace, make_trace, write_traces
from localmem.errors import BadInput
from localmem.evaluation.answers import Work
from localmem.evaluation.datasets.segmented_dialogues import SegmentedDialogue, read_segmented_dialogues
from localmem.files import read_text, read_yaml
from localmem.llm.base import LLM
from localmem.llm.scripted import ScriptedLLM
from localmem.llm.wrappers import Recorder
from localmem.prompts import load
from localmem.segmentation.segmenters import LLMSegmenter, segments_json
from localmem.systems.theanine.link import OTHER, Labeller, Pair
from localmem.types import Choice, Completion, Prompt, Unit

Stage = Literal["segment", "link"]

_START = datetime(2025, 3, 3, 18, tzinfo=UTC)
_PEOPLE = Teacher("people")
# ATOMIC's relations that correspond to one of Theanine's (none is Changed), how to say a tail about somebody, and the
# tails that then give a plain sentence.
_RELATIONS = {
    "xEffect": ("Cause", "{x} {tail}.", r"[a-z]+s( [a-z'PX Y]+)+$"),
    "xIntent": ("Reason", "{x} means {tail}.", r"to [a-z' ]+$"),
    "HinderedBy": ("HinderedBy", "{tail}.", r"PersonX [a-z]+ .+"),
    "xReact": ("React", "{x} feels {tail}.", r"[a-z]{3,}$"),
    "oReact": ("React", "{y} feels {tail}.", r"[a-z]{3,}$"),
    "xWant": ("Want", "{x} wants {tail}.", r"to [a-z' ]+$"),
}
_FEWEST, _MOST = 4, 12  # utterances of a dialogue that a small student can learn within minutes
_PER_RELATION = 300  # pairs of events
_SIZES: Mapping[Stage, Mapping[str, int]] = {
    "segment": {"test": 60, "valid": 16, "train": 680},
    "link": {"train": 900, "valid": 56, "test": 140},
}


class EventPair(NamedTuple):
    """Two events and the relation from the first to the second; `head` is the event in ATOMIC's words."""

    head: str
    first: str
    second: str
    relation: str


class _Changes(BaseModel):
    """The content of changed_events.yaml; `events` gives the list of values for each sentence."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    women: tuple[str, ...]
    men: tuple[str, ...]
    values: Mapping[str, tuple[str, ...]]
    events: Mapping[str, str]


@cache
def _load_changes() -> _Changes:
    return _Changes.model_validate(read_yaml(Path(__file__).parent / "changed_events.yaml"))


def convert_labels(
    stage: Stage, file: Path, folder: Path, notify: Callable[[str], object] = lambda _: None
) -> dict[str, int]:
    """Write train, valid and test traces as `localmem distill sift` does; return the number of traces by part.

    `file` holds labelled dialogues for the stage segment, and lines of ATOMIC for link. Raises BadInput.
    """
    if stage == "segment":
        dialogues = read_segmented_dialogues(file)
        short = [dialogue for dialogue in dialogues if _FEWEST <= len(dialogue.session.turns) <= _MOST]
        length = f"{_FEWEST} to {_MOST} utterances"
        if not short:
            raise BadInput(f"none of the {len(dialogues)} dialogues of {file} has {length}; give a file with some")
        if len(short) < len(dialogues):
            notify(f"left out {len(dialogues) - len(short)} of {len(dialogues)} dialogues that do not have {length}")
        traces = segment_traces(short, file.stem)
    else:
        traces = link_traces(read_event_pairs(file, _PER_RELATION), file.stem)
    parts = divide(traces, _SIZES[stage])
    if not parts["train"]:
        raise BadInput(
            f"{file} leaves nothing to learn, test and valid take all ({len(traces)}); give a file with more"
        )
    for part, chosen in parts.items():
        write_traces(folder / part / f"{stage}.jsonl", chosen)
    return {part: len(chosen) for part, chosen in parts.items()}


def segment_traces(dialogues: Sequence[SegmentedDialogue], data: str) -> list[Trace]:
    """SeCom's prompt for each dialogue, answered with the human segments."""
    traces: list[Trace] = []
    for dialogue in dialogues:
        with _recording(segments_json(dialogue.segments), Work("secom", data, dialogue.session.id), traces) as llm:
            LLMSegmenter(llm).segment([dialogue.session])
    return traces


def link_traces(pairs: Sequence[EventPair], data: str) -> list[Trace]:
    """The first prompt of Theanine's labeller for each pair of events, answered with their relation."""
    traces: list[Trace] = []
    for number, events in enumerate(pairs):
        dated = ((f"a{number}", events.first, _START), (f"b{number}", events.second, _START + timedelta(days=9)))
        old, new = (Unit(name, text, text, "sentence", "", name, (), time, time) for name, text, time in dated)
        with _recording(events.relation, Work("theanine", data, events.head), traces) as llm:
            Labeller(llm, reasoning=False, origin_tokens=0, fallbacks=Counter()).label([Pair(old, new)], {})
    return traces


def read_event_pairs(path: Path, count: int, seed: int = 0) -> list[EventPair]:
    """`count` pairs of each relation from lines of ATOMIC ("head @@ relation<tab>tail| tail"), about invented people.

    Pairs for Changed come from changed_events.yaml, pairs for Other from two unrelated events. Raises BadInput.
    """
    random = Random(seed)  # noqa: S311  # not used for security
    lines = [line for line in read_text(path).splitlines() if " @@ " in line]
    if not lines:
        raise BadInput(f"{path} holds no line of ATOMIC; write head @@ relation, a tab, and tails")
    random.shuffle(lines)
    candidates = [pair for line in lines if (pair := _parse_line(line, random))]
    pairs: list[EventPair] = []
    counts: Counter[str] = Counter()
    for pair in candidates:
        if counts[pair.relation] < count:
            counts[pair.relation] += 1
            pairs.append(pair)
    pairs += [_changed_pair(random) for _ in range(count)]
    pairs += [_unrelated_pair(*events) for events in zip(candidates[:count], candidates[count:], strict=False)]
    random.shuffle(pairs)
    return pairs


def divide(traces: Sequence[Trace], sizes: Mapping[str, int]) -> dict[str, list[Trace]]:
    """The first traces for each part, up to its size; no conversation, or head of ATOMIC, is in two parts."""
    parts: dict[str, list[Trace]] = {part: [] for part in sizes}
    part_by_episode: dict[str, str] = {}
    for trace in traces:
        part = next((name for name, size in sizes.items() if len(parts[name]) < size), None)
        if part and part_by_episode.setdefault(trace.metadata.work.episode, part) == part:
            parts[part].append(trace)
    return parts


def _parse_line(line: str, random: Random) -> EventPair | None:
    """None for a relation that is not one of Theanine's, or for a line that gives no plain sentences."""
    head, _, fields = line.partition(" @@ ")
    relation, _, tails = fields.partition("\t")
    if relation not in _RELATIONS or "___" in head or "PersonX" not in head or "PersonZ" in line:
        return None
    label, form, pattern = _RELATIONS[relation]
    plain = [tail.strip().rstrip(".") for tail in tails.split("|")]
    usable = [tail for tail in plain if tail != "none" and re.match(pattern, tail)]
    if not usable:
        return None
    changes = _load_changes()
    x, y = random.sample(changes.women if random.random() < 0.5 else changes.men, 2)

    def with_names(text: str) -> str:
        return text.replace("PersonX", x).replace("PersonY", y)

    second = with_names(form.format(x=x, y=y, tail=random.choice(usable)))
    return EventPair(head, f"{with_names(head)}.", second, label)


def _changed_pair(random: Random) -> EventPair:
    changes = _load_changes()
    event, pool = random.choice(list(changes.events.items()))
    user = random.choice([name for pair in zip(changes.women, changes.men, strict=True) for name in pair])
    first, second = (event.format(u=user, v=value) for value in random.sample(changes.values[pool], 2))
    return EventPair(first, first, second, "Changed")


def _unrelated_pair(pair: EventPair, other: EventPair) -> EventPair:
    """The first pair's event, followed by another story's event with the first person's name."""
    name, other_name = pair.first.split()[0], other.first.split()[0]
    return EventPair(pair.head, pair.first, other.second.replace(other_name, name), OTHER)


@contextmanager
def _recording(label: str, work: Work, traces: list[Trace]) -> Iterator[LLM]:
    """An LLM that answers its first prompt with the label; this exchange is added to the traces."""
    recorded: list[Trace] = []

    def answer(prompt: Prompt) -> str:
        if not recorded:
            return label
        return prompt.format.options[0] if isinstance(prompt.format, Choice) else ""

    def record(prompt: Prompt, completion: Completion, _time: float) -> None:
        if not recorded:
            recorded.append(make_trace(prompt, completion, load(prompt.name).digest, _PEOPLE, work))

    yield Recorder(ScriptedLLM(answer), record)
    traces += recorded
