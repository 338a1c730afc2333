"""One answer while it is decoded in process: its tokens, its format, its text, and how it ends.

Works on logits and stop strings; does not depend on the model, its cache or threads.
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
    """A prompt as token ids, and its answer so far (at most `limit` tokens; one of `ends` finishes it).

    Another thread may read `text` and `finished`: `finished` is set last, when nothing of the row changes any more.
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
    finished: bool = False
    dropped: bool = False

    @property
    def salt(self) -> str | None:
        """Rows of different salts do not share prefixes."""
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
            self._append(token)

    def finish(self, *, cut: bool = False, error: LLMError | None = None) -> None:
        """Ends the answer: regularly, cut by its limit, or by an error."""
        self.cut, self.error = cut, error
        if self.mass is not None and self.mass.decision is not None:
            self.text.add(self.mass.decision)
        self.text.finish()
        self.finished = True

    def _append(self, token: int) -> None:
        if self.constraint:
            self.constraint.accept(token)
        if self.mass is None:
            self.text.add(self.pieces.add(token))
        if self.text.stopped or self._is_complete():
            self.finish()
        elif len(self.output) >= self.limit:
            self.finish(cut=True)

    def _is_complete(self) -> bool:
        """Whether the format leaves nothing to decode."""
        if self.mass is not None and self.mass.decision is not None:
            return True
        return self.constraint is not None and self.constraint.complete


def _weigh(mass: ChoiceMass, constraint: Constraint, logits: torch.Tensor, token: int) -> None:
    tokens = constraint.allowed_tokens()
    weights = logits[0, torch.from_numpy(tokens).to(logits.device)].tolist()
    pairs = [(constraint.bytes_of(int(allowed)), weight) for allowed, weight in zip(tokens, weights, strict=True)]
    mass.step(pairs, constraint.bytes_of(token))
