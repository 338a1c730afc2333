"""SeCom: topical segments of past dialogue, found by denoised keys and shown as they were said (ICLR 2025).

What the paper says. A session is cut into segments of exchanges in one zero-shot call (section 2.2, eq. 1, Figure 6);
where labelled dialogues exist, a learned rubric joins the prompt (Figures 7 and 8, appendix A.1; `rubric` names the
file that the option --learn-rubric of `localmem eval segmentation` writes). Each unit is compressed before it is
indexed (section 2.3, eq. 2), by LLMLingua-2 to 75 % of its tokens (section 3). For a request u* the nearest units are
found under a budget and shown in time order (section 2): the original segments, neither compressed nor summarised. The
budget is 1,000 tokens (about 3 segments) on Long-MT-Bench+ and 4,000 (about 10) on LoCoMo (Table 1). Baselines with the
same code: one unit for each exchange ("turn-level") or for each session, with and without compression.

Differs from the paper:
- An answer names the last exchange of each segment, where the paper's has four numbers: none can be left out, or stand
  in two segments. An unusable answer gives segments of three exchanges, and is counted.
- Keys are denoised by LLMLingua-2 where its weights are on this machine (`localmem models pull
  llmlingua-2-xlm-roberta-large`), else by the shipped `minilm-l6-v2-compressor`, which learned from other data: which
  words of an exchange people's questions name. It knows English. With it recall neither rises nor falls.
- A session longer than the model's context is segmented in parts.
- The best unit is shown even when it exceeds the token budget, as at the paper's session level (Table 1: one session
  of 3,680 tokens under 1,000); after it, units are added as long as they fit.
- Incremental segmentation is ours: each exchange is judged when it was answered, and the session's end costs no call.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveInt, TypeAdapter

from localmem.bank import Bank
from localmem.errors import BadSettings
from localmem.llm.structured_output import generate_usable
from localmem.memory import Memory
from localmem.prompts import load, render
from localmem.retrieval.base import Scope
from localmem.segmentation import Segmenter
from localmem.segmentation.segmenters import EvenSegmenter, LLMSegmenter, Rubric, WholeSegmenter, segments_between
from localmem.systems import Options, Parts, System
from localmem.text.dialogue import add_units, count_fitting, day, latest_turns, transcript, transcript_unit
from localmem.types import Change, Choice, Exchange, Hit, Recall, Session, SetNote, Turn, Unit

COMPRESSOR = "llmlingua-2-xlm-roberta-large"  # as in the paper (section 3)
STARTS = "secom/starts"  # begins the name of the note with the segments of an open session
_CONTINUE = "secom/continue"
_ANSWERS = ("same", "new")
_TEMPLATE = 64  # tokens that a chat template adds, at most
_WIDTH = 32  # units searched for at first where only tokens limit them


class SeComOptions(Options):
    """SeCom's settings. At most `k` units and `tokens` tokens are shown; 0 sets no limit."""

    granularity: Literal["segment", "turn", "session"]
    segmenter: str
    incremental: bool
    rubric: str | None
    chunk: PositiveInt
    compress: Literal["auto", "required", "llmlingua", "none"]
    compressor: str | None
    rate: float = Field(gt=0, le=1)
    k: NonNegativeInt
    tokens: NonNegativeInt


class SeCom(Memory):
    """One unit a segment: its text is what was said, its key the same after compression, if any."""

    name = "secom"

    def __init__(self, parts: Parts, options: SeComOptions, bank: Bank | None = None) -> None:
        super().__init__(bank=bank, retriever=parts.new_retriever())
        self._llm = parts.llm
        self._options = options
        self._segmenter = parts.wrap(_segmenter(parts, options, self.fallbacks))
        compressor = _compressor_name(parts, options)
        self._compressor = parts.wrap(parts.load_compressor(compressor)) if compressor else None

    def recall(self, session: Session) -> Recall:
        hits = sorted(self._nearest(session.turns[-1]), key=lambda hit: _place(hit.unit))
        text = "\n\n".join(f"{day(hit.unit.time)}\n{hit.unit.text}" for hit in hits)
        return Recall(text=text, hits=tuple(hits))

    def end_session(self, session: Session) -> list[Change]:
        if not session.turns:
            return []
        return add_units(self._units(session, self._segments(session)))

    def _segments(self, session: Session) -> list[range]:
        return self._segmenter.segment([session])[0]

    def _units(self, session: Session, ranges: Sequence[range]) -> list[Unit]:
        exchanges = session.exchanges()
        runs = [[turn for exchange in exchanges[s.start : s.stop] for turn in exchange.turns()] for s in ranges]
        runs = [run for run in runs if any(turn.text.strip() for turn in run)]
        texts = [transcript(run) for run in runs]
        keys = self._compressor.compress(texts, self._options.rate) if self._compressor and texts else texts
        return [
            transcript_unit(session, f"g{number}", run, self._options.granularity, key)
            for number, (run, key) in enumerate(zip(runs, keys, strict=True))
        ]

    def _nearest(self, query: Turn) -> list[Hit]:
        width = self._options.k or _WIDTH
        while True:
            hits = self.search(query.text, width, Scope(now=query.time))
            fitting = self._fitting(hits)
            if fitting < len(hits) or self._options.k or len(hits) < width:
                return hits[: max(fitting, 1)]
            width *= 2

    def _fitting(self, hits: Sequence[Hit]) -> int:
        texts = [hit.unit.text for hit in hits]
        budget = self._options.tokens
        return count_fitting(texts, budget, self._llm.count_tokens) if budget and texts else len(hits)


class IncrementalSeCom(SeCom):
    """Segments are decided during the session: each exchange continues the open segment or begins a new one.

    The decisions are stored until the session ends, in a note of its own: the ids of the user turns that begin one.
    So taking back one session leaves the others. After an unusable answer the segment continues. A session without any
    reply is segmented at its end, as by SeCom.
    """

    def recall(self, session: Session) -> Recall:
        """As SeCom's; it also proposes the open segment's text as a note, from which `observe` decides."""
        starts = self._starts(session.id) or []
        past = session.turns[:-1]  # the last turn has no reply yet
        first = max((number for number, turn in enumerate(past) if turn.id in starts), default=0)
        # The segment's end may fill half of the model's context; the rest is for the next exchange.
        room = self._llm.context_length // 2 - load(_CONTINUE).max_tokens - _TEMPLATE
        text = transcript(latest_turns(past[first:], room, self._llm.count_tokens))
        open_segment = SetNote(f"{STARTS}/{session.id}", text, session.turns[-1].time)
        return replace(super().recall(session), proposed=(open_segment,))

    def observe(self, exchange: Exchange) -> list[Change]:
        """Records in the note whether the exchange begins a segment."""
        proposed = exchange.recall.proposed if exchange.recall else ()
        if exchange.user is None or not proposed:
            return []
        (segment,) = (change for change in proposed if isinstance(change, SetNote))
        starts = self._starts(segment.name.removeprefix(f"{STARTS}/"))
        turns = starts or []
        if exchange.user.id not in turns and segment.text and not self._continues(segment.text, exchange):
            turns = [*turns, exchange.user.id]
        if starts == turns:
            return []
        return [SetNote(segment.name, json.dumps(turns, ensure_ascii=False), exchange.user.time)]

    def end_session(self, session: Session) -> list[Change]:
        was_open = self._starts(session.id) is not None and session.turns
        note = [SetNote(f"{STARTS}/{session.id}", "", session.turns[-1].time)] if was_open else []
        return [*super().end_session(session), *note]

    def _segments(self, session: Session) -> list[range]:
        starts = self._starts(session.id)
        if starts is None:
            return super()._segments(session)
        exchanges = session.exchanges()
        first = {number for number, exchange in enumerate(exchanges) if exchange.user and exchange.user.id in starts}
        return segments_between(first, len(exchanges))

    def _starts(self, session_id: str) -> list[str] | None:
        note = self.bank.notes.get(f"{STARTS}/{session_id}", "")
        return TypeAdapter(list[str]).validate_json(note) if note else None

    def _continues(self, segment: str, exchange: Exchange) -> bool:
        prompt = render(_CONTINUE, form=Choice(_ANSWERS), segment=segment, exchange=transcript(exchange.turns()))
        (answer,) = generate_usable(self._llm, [prompt], self.fallbacks)
        return answer is None or answer.text == _ANSWERS[0]


def _place(unit: Unit) -> tuple[datetime, datetime, str, int]:
    number = unit.id.rpartition("/g")[2]
    return unit.time, unit.learned, unit.session, int(number) if number.isdecimal() else 0  # 0: added by hand


def _make(parts: Parts, options: SeComOptions, bank: Bank | None) -> Memory:
    return (IncrementalSeCom if options.incremental else SeCom)(parts, options, bank)


def _compressor_name(parts: Parts, options: SeComOptions) -> str | None:
    """The compressor that the options name, else the installed one or the paper's; None for keys as they are."""
    if options.compress == "none" and options.compressor:
        raise BadSettings(
            f"option 'compressor' is {options.compressor!r}, but nothing is compressed; set compress: llmlingua, or "
            "remove compressor"
        )
    installed = parts.find_compressor()
    if options.compress == "required" and not (options.compressor or installed):
        raise BadSettings("there is no compressor on this machine; run `localmem models pull starters`")
    defaults = {"auto": installed, "required": installed, "llmlingua": COMPRESSOR, "none": None}
    return options.compressor or defaults[options.compress]


def _segmenter(parts: Parts, options: SeComOptions, fallbacks: Counter[str]) -> Segmenter:
    if options.rubric and (options.granularity != "segment" or options.segmenter != "llm"):
        raise BadSettings(
            f"option 'rubric' guides the backbone, but granularity {options.granularity!r} with segmenter "
            f"{options.segmenter!r} does not ask it; remove rubric, or set segment and llm"
        )
    if options.granularity != "segment":
        if options.incremental:
            raise BadSettings(
                f"option 'incremental' needs granularity 'segment', not {options.granularity!r}; change one of them"
            )
        return EvenSegmenter(1) if options.granularity == "turn" else WholeSegmenter()
    if options.segmenter != "llm":
        return parts.load_segmenter(options.segmenter)
    rubric = Rubric.load(Path(options.rubric)) if options.rubric else None
    return LLMSegmenter(parts.llm, rubric=rubric, chunk=options.chunk, fallbacks=fallbacks)


SYSTEM = System(
    "secom", SeComOptions, _make, "topical segments of dialogue, as they were said", "at each session's end, once"
)
