"""One answer while it is decoded in process: its format, its next token, its text, and how it ends.

Works on logits and stop strings; does not depend on the model, its cache or threads. xgrammar computes which tokens a
format allows. A token is the likeliest, or sampled with the answer's own generator: so the result of a seed does not
depend on the other answers of a batch.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
import xgrammar
from transformers import (
    LogitsProcessor,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from localmem.errors import BadInput, LLMError
from localmem.llm.base import AnswerText
from localmem.llm.choice_mass import ChoiceMass
from localmem.llm.tokenizer import Detokenizer
from localmem.types import Choice, FreeText, JsonSchema, Prompt

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from transformers import PreTrainedTokenizerBase

# Schema keywords that the compiler ignores. An answer could violate them, so a prompt with one is an error.
_UNENFORCED = ("multipleOf", "uniqueItems", "contains", "minContains", "maxContains", "not", "if", "dependentRequired")
_COMPILED_BYTES = 256 * 1024 * 1024


class Grammars:
    """Compiles formats for one tokenizer; compiled schemas are cached. Safe for use from many threads."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", vocab_size: int, ends: Sequence[int]) -> None:
        info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=vocab_size, stop_token_ids=list(ends))
        self._compiler = xgrammar.GrammarCompiler(info, cache_limit_bytes=_COMPILED_BYTES)
        self.token_bytes: list[bytes] = info.decoded_vocab
        self.never = _bits(set(tokenizer.all_special_ids) - set(ends), vocab_size)
        self.ends = _bits(set(ends), vocab_size)
        self.vocab_size = vocab_size

    def constraint(self, prompt: Prompt) -> "Constraint | None":
        """Enforces the prompt's format; None for free text. Raises BadInput for a format that cannot be enforced."""
        if isinstance(prompt.format, FreeText):
            return None
        try:
            return Constraint(self._compile(prompt.format), self)
        except RuntimeError as error:  # what the compiler raises for every schema it does not support
            reason = str(error).strip().rpartition(": ")[2]
            raise BadInput(
                f"the format of prompt {prompt.name!r} cannot be enforced: {reason}; change its schema"
            ) from error

    def _compile(self, form: Choice | JsonSchema) -> xgrammar.CompiledGrammar:
        if isinstance(form, Choice):
            options = " | ".join(json.dumps(option, ensure_ascii=False) for option in form.options)
            return self._compiler.compile_grammar(f"root ::= {options}")
        unenforced = sorted(set(_keywords(form.schema)) & set(_UNENFORCED))
        if unenforced:
            raise RuntimeError(f"the decoder does not enforce {', '.join(unenforced)}")
        # With free whitespace a small model may write blanks until its tokens run out.
        return self._compiler.compile_json_schema(json.dumps(form.schema), any_whitespace=False)


class Constraint:
    """The position of one answer in its format."""

    def __init__(self, compiled: xgrammar.CompiledGrammar, grammars: Grammars) -> None:
        self._matcher = xgrammar.GrammarMatcher(compiled)
        self._grammars = grammars
        self._bitmask = xgrammar.allocate_token_bitmask(1, grammars.vocab_size)
        self._update()

    @property
    def complete(self) -> bool:
        """Whether only the end of the answer can follow."""
        bits = self._bitmask.numpy()[0]
        return not np.any(bits & ~self._grammars.ends)

    def mask(self, logits: torch.Tensor) -> None:
        """Sets the logits (1 x vocabulary) of all tokens that the format forbids to minus infinity, in place."""
        xgrammar.apply_token_bitmask_inplace(logits, self._bitmask.to(logits.device))

    def allowed_tokens(self) -> "NDArray[np.intp]":
        """Ids of the tokens that may come next."""
        return np.flatnonzero(np.unpackbits(self._bitmask.numpy()[0].view(np.uint8), bitorder="little"))

    def bytes_of(self, token: int) -> bytes:
        """The text of a token as UTF-8, which may be a part of a character."""
        return self._grammars.token_bytes[token]

    def accept(self, token: int) -> None:
        """Advances by a token that was allowed."""
        if not self._matcher.accept_token(token):
            raise RuntimeError(f"token {token} was decoded against the format")
        self._update()

    def _update(self) -> None:
        if self._matcher.is_terminated():
            return
        self._matcher.fill_next_token_bitmask(self._bitmask)
        bits = self._bitmask.numpy()[0]
        # A control token decodes to nothing, although the grammar takes its name for characters.
        bits &= ~self._grammars.never


def _bits(tokens: set[int], vocab_size: int) -> "NDArray[np.int32]":
    flags = np.zeros(-(-vocab_size // 32) * 32, dtype=np.uint8)
    flags[[token for token in tokens if token < vocab_size]] = 1
    return np.packbits(flags, bitorder="little").view(np.int32)


def _keywords(schema: object) -> Iterator[str]:
    """Every keyword of a schema and of its parts; keys of properties and definitions are names, not keywords."""
    if isinstance(schema, Mapping):
        for key, value in schema.items():
            if key in ("properties", "patternProperties", "$defs", "definitions"):
                for part in value.values():
                    yield from _keywords(part)
            elif key not in ("enum", "const", "default", "examples"):
                yield key
                yield from _keywords(value)
    elif isinstance(schema, Sequence) and not isinstance(schema, str):
        for part in schema:
            yield from _keywords(part)


_GREEDY_BELOW = 1e-5
_SHAPERS: Mapping[str, Callable[[float], LogitsProcessor]] = {
    "min_p": lambda value: MinPLogitsWarper(float(value)),
    "top_k": lambda value: TopKLogitsWarper(int(value)),
    "top_p": lambda value: TopPLogitsWarper(float(value)),
}
# The values that mean "off".
_OFF: Mapping[str, tuple[float, ...]] = {
    "min_p": (0,),
    "top_k": (0, -1),
    "top_p": (1,),
    "repetition_penalty": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
}
KNOWN_FIELDS = frozenset({*_OFF, "chat_template_kwargs", "cache_salt"})


class Sampler:
    """Picks the tokens of one answer.

    Of `Prompt.extra` it uses top_p, top_k, min_p and the repetition, presence and frequency penalties, with vLLM's
    meanings and order.
    """

    def __init__(self, prompt: Prompt, prompt_ids: Sequence[int], device: torch.device) -> None:
        settings = _numbers(prompt)
        self._penalties = {name: value for name, value in settings.items() if name not in _SHAPERS}
        self._prompt_ids = prompt_ids
        random = prompt.temperature >= _GREEDY_BELOW
        self._shapers = _shapers(prompt, settings) if random else []
        self._generator = torch.Generator(device=device) if random else None
        if self._generator and prompt.seed is None:
            self._generator.seed()
        elif self._generator:
            self._generator.manual_seed(prompt.seed)

    def pick(self, logits: torch.Tensor, output: Sequence[int]) -> int:
        """The next token, given float32 logits (1 x vocabulary) and the answer's tokens so far."""
        scores = self._penalise(logits, output) if self._penalties else logits
        if self._generator is None:
            return int(scores.argmax())
        no_ids = torch.empty((1, 0), dtype=torch.long, device=scores.device)
        for shaper in self._shapers:
            scores = shaper(no_ids, scores)
        return _sample(scores, self._generator)

    def _penalise(self, logits: torch.Tensor, output: Sequence[int]) -> torch.Tensor:
        repetition = self._penalties.get("repetition_penalty")
        if repetition is not None:
            tokens = torch.tensor([[*self._prompt_ids, *output]], device=logits.device)
            logits = RepetitionPenaltyLogitsProcessor(repetition)(tokens, logits)
        counts = torch.bincount(torch.tensor(output, dtype=torch.long), minlength=logits.shape[1]).to(logits)
        frequency, presence = (self._penalties.get(f"{kind}_penalty", 0.0) for kind in ("frequency", "presence"))
        return logits - frequency * counts - presence * (counts > 0)


def _sample(scores: torch.Tensor, generator: torch.Generator) -> int:
    """A token sampled with one random number; torch.multinomial uses one for each token of the vocabulary."""
    heights = scores[0].double().softmax(-1).cumsum(-1)
    if not torch.isfinite(heights[-1]):
        raise RuntimeError("the model returned no probabilities because its numbers overflowed; try dtype float32")
    point = torch.rand(1, generator=generator, device=scores.device, dtype=torch.float64) * heights[-1]
    return min(int(torch.searchsorted(heights, point, right=True)), len(heights) - 1)


def _numbers(prompt: Prompt) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for name, off in _OFF.items():
        value = prompt.extra.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BadInput(f"prompt {prompt.name!r} has {name}={value!r}; give a number")
        if value not in off:
            numbers[name] = value
    return numbers


def _shapers(prompt: Prompt, settings: Mapping[str, float]) -> list[LogitsProcessor]:
    try:
        shapers = [_SHAPERS[name](settings[name]) for name in sorted(_SHAPERS) if name in settings]
        return [TemperatureLogitsWarper(float(prompt.temperature)), *shapers]
    except ValueError as error:
        raise BadInput(f"prompt {prompt.name!r} cannot be sampled: {error}") from error


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
        if self.mass is not None and self.mass.decision is not None:
            return True
        return self.constraint is not None and self.constraint.complete


def _weigh(mass: ChoiceMass, constraint: Constraint, logits: torch.Tensor, token: int) -> None:
    tokens = constraint.allowed_tokens()
    weights = logits[0, torch.from_numpy(tokens).to(logits.device)].tolist()
    pairs = [(constraint.bytes_of(int(allowed)), weight) for allowed, weight in zip(tokens, weights, strict=True)]
    mass.step(pairs, constraint.bytes_of(token))
