"""Labels that people gave, as traces of a stage: dialogues cut into segments, and ATOMIC's relations between events.

Prompts are those that the product's own parts ask: a part runs with an LLM that gives the label, and what it was asked
is kept. Knows no weights. `python -m finetune.traces.human_labels segment|link FILE DIR` writes train, valid and test.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import NamedTuple

import click

from finetune.program import FILE, PLACE, run_program
from finetune.reply_lessons.vocabulary import Fact, filled, topics, values
from finetune.traces.trace import Teacher, Trace, trace_of, write_traces
from localmem.errors import BadInput
from localmem.evaluation.answers import Work
from localmem.evaluation.datasets.segmented_dialogues import SegmentedDialogue, read_segmented_dialogues
from localmem.llm.base import LLM
from localmem.llm.scripted import ScriptedLLM
from localmem.llm.wrappers import Recorder
from localmem.prompts import load
from localmem.segmentation.segmenters import LLMSegmenter, written
from localmem.systems.theanine.link import OTHER, Labeller, Pair
from localmem.types import Choice, Completion, Prompt, Unit

_DAY = datetime(2025, 3, 3, 18, tzinfo=UTC)
_GOLD = Teacher("people")
# ATOMIC's relations that are one of Theanine's, and how a tail is said of somebody. Its relations know no Changed.
_SAID = {
    "xEffect": ("Cause", "{x} {tail}."),
    "xIntent": ("Reason", "{x} means {tail}."),
    "HinderedBy": ("HinderedBy", "{tail}."),
    "xReact": ("React", "{x} feels {tail}."),
    "oReact": ("React", "{y} feels {tail}."),
    "xWant": ("Want", "{x} wants {tail}."),
}
_FIT = {
    "xEffect": re.compile(r"[a-z]+s( [a-z'PX Y]+)+$"),
    "xIntent": re.compile(r"to [a-z' ]+$"),
    "HinderedBy": re.compile(r"PersonX [a-z]+ .+"),
    "xReact": re.compile(r"[a-z]{3,}$"),
    "oReact": re.compile(r"[a-z]{3,}$"),
    "xWant": re.compile(r"to [a-z' ]+$"),
}

_FEWEST, _MOST = 4, 12  # utterances of a dialogue: those that a small student learns in minutes
_EACH = 300  # pairs of events of a relation
_SIZES: Mapping[str, Mapping[str, int]] = {
    "segment": {"test": 60, "valid": 16, "train": 680},
    "link": {"train": 900, "valid": 56, "test": 140},
}


class Linked(NamedTuple):
    """Two events and the relation that leads from the first to the second; `head` is ATOMIC's."""

    head: str
    first: str
    second: str
    relation: str


def segment_traces(dialogues: Sequence[SegmentedDialogue], data: str) -> list[Trace]:
    """What SeCom's segmenter asks of each dialogue, answered with its right segments."""
    found: list[Trace] = []
    for one in dialogues:
        right = written(one.segments)
        with_gold, asked = _answering(right)
        LLMSegmenter(with_gold).segment([one.session])
        found += _traces(asked, Work("secom", data, one.session.id))
    return found


def link_traces(links: Sequence[Linked], data: str) -> list[Trace]:
    """What Theanine's labeller asks first of each pair of events, answered with their relation."""
    found: list[Trace] = []
    for number, one in enumerate(links):
        pair = Pair(_event(f"a{number}", one.first, _DAY), _event(f"b{number}", one.second, _DAY + timedelta(days=9)))
        with_gold, asked = _answering(one.relation)
        Labeller(with_gold, reasoning=False, origin_tokens=0, fallbacks=Counter()).label([pair], {})
        found += _traces(asked, Work("theanine", data, one.head))
    return found


def read_links(path: Path, each: int, seed: int = 0) -> list[Linked]:
    """Events of ATOMIC in the form "head  relation<tab>tail| tail", `each` of a relation, by people of our own.

    Changed comes from the lessons for replies, Other from two events that have nothing to do with each other.
    """
    random = Random(seed)  # noqa: S311  # no secret
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if "  " in line]
    if not lines:
        raise BadInput(f"{path} holds no line of ATOMIC; give head  relation, a tab, and tails")
    random.shuffle(lines)
    told = [one for line in lines if (one := _linked(line, random))]
    found: list[Linked] = []
    counted: Counter[str] = Counter()
    for one in told:
        if counted[one.relation] < each:
            counted[one.relation] += 1
            found.append(one)
    found += [_changed(random) for _ in range(each)]
    found += [_unrelated(one, other) for one, other in zip(told[:each], told[each:], strict=False)]
    random.shuffle(found)
    return found


def _linked(line: str, random: Random) -> Linked | None:
    """None for a relation that is not one of Theanine's, or a line that makes no plain sentences."""
    head, _, rest = line.partition("  ")
    relation, _, tails = rest.partition("\t")
    if relation not in _SAID or "___" in head or "PersonX" not in head or "PersonZ" in line:
        return None
    plain = [tail.strip().rstrip(".") for tail in tails.split("|")]
    fit = [tail for tail in plain if tail != "none" and _FIT[relation].match(tail)]
    if not fit:
        return None
    label, form = _SAID[relation]
    x, y = random.sample(values()["women"] if random.random() < 0.5 else values()["men"], 2)

    def named(text: str) -> str:
        return text.replace("PersonX", x).replace("PersonY", y)

    second = named(form.format(x=x, y=y, tail=random.choice(fit)))
    return Linked(head, f"{named(head)}.", second, label)


def _changed(random: Random) -> Linked:
    topic = random.choice([one for one in topics() if one.me and one.me.new])
    user = random.choice(values()["firstnames"])
    before, after = random.sample(values()[topic.pool], 2)
    first, second = (filled(Fact(topic, None, value), topic.me.tell[0], user) for value in (before, after))  # type: ignore[union-attr]
    return Linked(f"{topic.id}/{user}/{before}", first, second, "Changed")


def _unrelated(one: Linked, other: Linked) -> Linked:
    """The second event is another story's, told of the first one's person."""
    name, whose = one.first.split()[0], other.first.split()[0]
    return Linked(one.head, one.first, other.second.replace(whose, name), OTHER)


def _answering(label: str) -> tuple[LLM, list[tuple[Prompt, Completion]]]:
    """An LLM that answers what it is asked first with a label, and the list of that."""
    asked: list[tuple[Prompt, Completion]] = []

    def keep(prompt: Prompt, said: Completion, _time: float) -> None:
        if not asked:
            asked.append((prompt, said))

    return Recorder(ScriptedLLM(lambda prompt: label if not asked else _any(prompt)), keep), asked


def _any(prompt: Prompt) -> str:
    return prompt.format.options[0] if isinstance(prompt.format, Choice) else ""


def _traces(asked: Sequence[tuple[Prompt, Completion]], work: Work) -> list[Trace]:
    return [trace_of(prompt, said, load(prompt.name).digest, _GOLD, work) for prompt, said in asked]


def _event(name: str, text: str, time: datetime) -> Unit:
    return Unit(name, text, text, "sentence", "", name, (), time, time)


def divided(traces: Sequence[Trace], sizes: Mapping[str, int]) -> dict[str, list[Trace]]:
    """The first so many of each part; no conversation, or head of ATOMIC, is in two of them."""
    parts: dict[str, list[Trace]] = {part: [] for part in sizes}
    owner: dict[str, str] = {}
    for one in traces:
        open_part = next((part for part, size in sizes.items() if len(parts[part]) < size), None)
        if open_part and owner.setdefault(one.metadata.work.episode, open_part) == open_part:
            parts[open_part].append(one)
    return parts


def main(stage: str, file: Path, folder: Path) -> None:
    """Writes the parts as `localmem distill sift` lays them out."""
    if stage == "segment":
        dialogues = [one for one in read_segmented_dialogues(file) if _FEWEST <= len(one.session.turns) <= _MOST]
        traces = segment_traces(dialogues, file.stem)
    else:
        traces = link_traces(read_links(file, _EACH), file.stem)
    for part, held in divided(traces, _SIZES[stage]).items():
        write_traces(folder / part / f"{stage}.jsonl", held)


if __name__ == "__main__":
    run_program(
        main,
        click.Argument(["stage"], type=click.Choice(list(_SIZES))),
        click.Argument(["file"], type=FILE),
        click.Argument(["folder"], type=PLACE),
    )
