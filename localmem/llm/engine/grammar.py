"""Answers kept inside a format while they are decoded in process; xgrammar works out which tokens the format allows.

Knows no model: it masks logits and is told which token was taken.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
import xgrammar

from localmem.errors import BadInput
from localmem.types import Choice, FreeText, JsonSchema, Prompt

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from transformers import PreTrainedTokenizerBase

# Schema words that the compiler reads past: an answer could break them, so a prompt may not ask for them.
_UNENFORCED = ("multipleOf", "uniqueItems", "contains", "minContains", "maxContains", "not", "if", "dependentRequired")
_COMPILED_BYTES = 256 * 1024 * 1024


class Grammars:
    """Compiles formats for one tokenizer; compiled schemas are kept. Safe for use from many threads."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", vocab_size: int, ends: Sequence[int]) -> None:
        info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=vocab_size, stop_token_ids=list(ends))
        self._compiler = xgrammar.GrammarCompiler(info, cache_limit_bytes=_COMPILED_BYTES)
        self.token_bytes: list[bytes] = info.decoded_vocab
        self.never = _bits(set(tokenizer.all_special_ids) - set(ends), vocab_size)
        self.ends = _bits(set(ends), vocab_size)
        self.vocab_size = vocab_size

    def constraint(self, prompt: Prompt) -> "Constraint | None":
        """What keeps the prompt's answer in its format; BadInput when the format cannot be kept."""
        if isinstance(prompt.format, FreeText):
            return None
        try:
            return Constraint(self._compile(prompt.format), self)
        except RuntimeError as error:  # what the compiler raises for any schema it cannot serve
            reason = str(error).strip().rpartition(": ")[2]
            raise BadInput(
                f"the format of prompt {prompt.name!r} cannot be enforced: {reason}; change its schema"
            ) from error

    def _compile(self, wanted: Choice | JsonSchema) -> xgrammar.CompiledGrammar:
        if isinstance(wanted, Choice):
            options = " | ".join(json.dumps(option, ensure_ascii=False) for option in wanted.options)
            return self._compiler.compile_grammar(f"root ::= {options}")
        unenforced = sorted(set(_words(wanted.schema)) & set(_UNENFORCED))
        if unenforced:
            raise RuntimeError(f"no decoder enforces {', '.join(unenforced)}")
        # Free whitespace would let a small model write blanks until its tokens are spent.
        return self._compiler.compile_json_schema(json.dumps(wanted.schema), any_whitespace=False)


class Constraint:
    """One answer's place in its format."""

    def __init__(self, compiled: xgrammar.CompiledGrammar, grammars: Grammars) -> None:
        self._matcher = xgrammar.GrammarMatcher(compiled)
        self._grammars = grammars
        self._bitmask = xgrammar.allocate_token_bitmask(1, grammars.vocab_size)
        self._look()

    @property
    def complete(self) -> bool:
        """Nothing but the end can follow."""
        bits = self._bitmask.numpy()[0]
        return not np.any(bits & ~self._grammars.ends)

    def mask(self, logits: torch.Tensor) -> None:
        """Sets the logits (1 x vocabulary) of all tokens that the format forbids to minus infinity, in place."""
        xgrammar.apply_token_bitmask_inplace(logits, self._bitmask.to(logits.device))

    def allowed(self) -> "NDArray[np.intp]":
        """Ids of the tokens that may come next."""
        return np.flatnonzero(np.unpackbits(self._bitmask.numpy()[0].view(np.uint8), bitorder="little"))

    def bytes_of(self, token: int) -> bytes:
        return self._grammars.token_bytes[token]

    def accept(self, token: int) -> None:
        """Takes a token that was allowed."""
        if not self._matcher.accept_token(token):
            raise RuntimeError(f"token {token} was decoded against the format")
        self._look()

    def _look(self) -> None:
        if self._matcher.is_terminated():
            return
        self._matcher.fill_next_token_bitmask(self._bitmask)
        bits = self._bitmask.numpy()[0]
        # A control token decodes to nothing, whatever the grammar thinks its characters are.
        bits &= ~self._grammars.never


def _bits(tokens: set[int], vocab_size: int) -> "NDArray[np.int32]":
    flags = np.zeros(-(-vocab_size // 32) * 32, dtype=np.uint8)
    flags[[token for token in tokens if token < vocab_size]] = 1
    return np.packbits(flags, bitorder="little").view(np.int32)


def _words(schema: object) -> Iterator[str]:
    """Every key of a schema; also those under properties, which name fields and are told apart by their place."""
    if isinstance(schema, Mapping):
        for key, value in schema.items():
            if key in ("properties", "patternProperties", "$defs", "definitions"):
                for part in value.values():
                    yield from _words(part)
            elif key not in ("enum", "const", "default", "examples"):
                yield key
                yield from _words(value)
    elif isinstance(schema, Sequence) and not isinstance(schema, str):
        for part in schema:
            yield from _words(part)
