"""Formats enforced while an answer is decoded in process; xgrammar computes which tokens the format allows.

Does not depend on the model: it masks logits and gets the token that was chosen.
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
