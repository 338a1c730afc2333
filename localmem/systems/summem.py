"""SumMem: the past is summarised for every request, by what matters to it.

SeCom's baseline (section 3): summaries of past dialogue relevant to the user's request are generated when it comes, and
are its context. Past dialogue is kept word for word, a unit a turn; a session's end calls no model. SumMem-MSC, CREEM's
baseline of a similar name, is a setting of all_memories.

Differs from the paper: past dialogue longer than the model's context is read in parts, all asked at once, only the
newest `parts` of them; their sentences are shown part after part.
"""

from collections.abc import Sequence
from dataclasses import replace

from pydantic import PositiveInt

from localmem.bank import Bank
from localmem.grounding.gate import Gate
from localmem.llm.structured_output import answer_format, array, count_fallback, generate_usable, string
from localmem.memory import Memory
from localmem.prompts import inputs_of, load, render
from localmem.summaries.summarize import read_memories
from localmem.systems import Options, Parts, System
from localmem.text.dialogue import add_units, history_text, pack, utterance_units
from localmem.types import Change, Exchange, Hit, Prompt, Recall, Session, Unit

_PROMPT = "summem/summarize"


class SumMemOptions(Options):
    """Sentences for each part of the past, their most characters, and the parts that are read."""

    sentences: PositiveInt
    longest: PositiveInt
    parts: PositiveInt


class SumMem(Memory):
    """One unit a turn. `fallbacks` counts unusable answers and replies for which parts of the past were left out."""

    name = "summem"

    def __init__(self, parts: Parts, options: SumMemOptions, bank: Bank | None = None) -> None:
        super().__init__(bank=bank)
        self._llm = parts.llm
        self._parts = options.parts
        self._form = answer_format(memories=array(string(options.longest), options.sentences))

    def recall(self, session: Session) -> Recall:
        request = session.turns[-1].text
        runs = self._runs(list(self.bank.live()), request)
        prompts = [self._prompt(run, request) for run in runs]
        answers = generate_usable(self._llm, prompts, self.fallbacks)
        gate = Gate(session.turns, self.fallbacks)
        summaries = [
            gate.admit(prompt, read_memories(prompt, answer, self.fallbacks))
            for prompt, answer in zip(prompts, answers, strict=True)
        ]
        unique = dict.fromkeys(sentence for sentences in summaries for sentence in sentences)
        sources = [unit for run, sentences in zip(runs, summaries, strict=True) if sentences for unit in run]
        return Recall("\n".join(unique), tuple(Hit(unit, 0.0) for unit in sources), tuple(gate.refusals))

    def observe(self, exchange: Exchange) -> list[Change]:
        """What the gate refused of this reply's summary."""
        return [*exchange.recall.proposed] if exchange.recall else []

    def end_session(self, session: Session) -> list[Change]:
        return add_units(utterance_units(session))

    def _prompt(self, run: Sequence[Unit], request: str) -> Prompt:
        """The prompt of one part; the speakers are among its inputs for what answers from these instead of the text."""
        prompt = render(_PROMPT, form=self._form, history=history_text(run), request=request)
        speakers = {"speakers": list(dict.fromkeys(unit.speaker for unit in run))}
        return replace(prompt, inputs={**prompt.inputs, **inputs_of(speakers)})

    def _runs(self, past: Sequence[Unit], request: str) -> list[tuple[Unit, ...]]:
        """The newest parts of the past, each as long as the model can read next to the request."""
        *sizes, request_size = self._llm.count_tokens([*(f"{unit.text}\n" for unit in past), request])
        room = self._llm.context_length - load(_PROMPT).max_tokens - request_size
        runs = pack(past, sizes, max(1, room * 3 // 4))  # a quarter is reserved for instructions and dates
        if len(runs) > self._parts:
            reason = f"only the newest {self._parts} of {len(runs)} parts of the past are read"
            count_fallback(_PROMPT, reason, self.fallbacks)
        return runs[-self._parts :]


SYSTEM = System("summem", SumMemOptions, SumMem, "each turn; the past is summarised for each request", "for each reply")
