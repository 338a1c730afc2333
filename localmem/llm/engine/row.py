"""One answer under way in process: its tokens, its format, its text, and how it ends.

Knows logits and stop strings; knows no model, no cache and no threads.
"""

from dataclasses import dataclass, field

import torch

from localmem.errors import LLMError
from localmem.llm.answer_text import AnswerText
from localmem.llm.choices import ChoiceMass
from localmem.llm.engine.grammar import Constraint
from localmem.llm.engine.sampling import Sampler
from localmem.llm.tokenizer import Detokenizer
from localmem.types import Prompt


@dataclass(slots=True, eq=False)
class Row:
    """A prompt as token ids, and the answer to it so far (at most `limit` tokens; `ends` finish it).

    Another thread may watch `text` and `done`: `done` is set last, when nothing of the row changes any more.
    """

    prompt: Prompt
    ids: list[int]
    limit: int
    ends: frozenset[int]
    sampler: Sampler
    pieces: Detokenizer
    text: AnswerText
    constraint: Constraint | None = None
    mass: ChoiceMass | None = None
    adapter: str | None = None
    trimmed: int = 0
    output: list[int] = field(default_factory=list)
    cached: int = 0
    cut: bool = False
    error: LLMError | None = None
    done: bool = False
    dropped: bool = False

    @property
    def salt(self) -> str | None:
        """What keeps its prefix apart from others'."""
        salt = self.prompt.extra.get("cache_salt")
        return None if salt is None else str(salt)

    def take(self, logits: torch.Tensor) -> None:
        """Picks the next token from float32 logits (1 x vocabulary), which it may change in place."""
        if self.constraint:
            self.constraint.mask(logits)
        token = self.sampler.pick(logits, self.output)
        if self.mass and self.constraint:
            _weigh(self.mass, self.constraint, logits, token)
        self.output.append(token)
        if token in self.ends:
            self.finish()
        else:
            self._go_on(token)

    def finish(self, *, cut: bool = False, error: LLMError | None = None) -> None:
        """Ends the answer: in the ordinary way, cut by its limit, or by an error."""
        self.cut, self.error = cut, error
        if self.mass is not None and self.mass.decided is not None:
            self.text.add(self.mass.decided)
        self.text.finish()
        self.done = True

    def _go_on(self, token: int) -> None:
        if self.constraint:
            self.constraint.accept(token)
        if self.mass is None:
            self.text.add(self.pieces.add(token))
        if self.text.stopped or self._formed():
            self.finish()
        elif len(self.output) >= self.limit:
            self.finish(cut=True)

    def _formed(self) -> bool:
        """Whether the format leaves nothing to decode."""
        if self.mass is not None and self.mass.decided is not None:
            return True
        return self.constraint is not None and self.constraint.complete


def _weigh(mass: ChoiceMass, constraint: Constraint, logits: torch.Tensor, token: int) -> None:
    allowed = constraint.allowed()
    weights = logits[0, torch.from_numpy(allowed).to(logits.device)].tolist()
    pairs = [(constraint.bytes_of(int(one)), weight) for one, weight in zip(allowed, weights, strict=True)]
    mass.step(pairs, constraint.bytes_of(token))
