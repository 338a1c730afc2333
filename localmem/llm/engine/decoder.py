"""Answers decoded together in process: a changing batch of rows goes through the model, one token a step.

A row joins between steps and leaves when it is done, so short answers never wait for long ones. Knows token ids and how
to read them; what a row makes of its logits is the row's affair. Its caller steps from one thread at a time.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue

import torch

from localmem.errors import LLMError
from localmem.llm.engine.adapters import Adapters
from localmem.llm.engine.keyvalues import RowCache
from localmem.llm.engine.prefixes import Prefixes, Saved
from localmem.llm.engine.row import Row

logger = logging.getLogger(__name__)

# Tokens read in one forward pass, padding included: bounds the memory that reading takes.
_READ_TOKENS = 8192
# Padding that reading prompts of different lengths together may cost.
_READ_PADDING = 256


@dataclass(slots=True)
class _Batch:
    """Rows under way, their keys and values, and which columns are theirs (rows x columns, 1 or 0; padding is left)."""

    rows: list[Row]
    cache: RowCache
    mask: torch.Tensor

    def without(self, gone: Callable[[Row], bool]) -> "_Batch | None":
        kept = [index for index, row in enumerate(self.rows) if not gone(row)]
        if not kept:
            return None
        if len(kept) < len(self.rows):
            mask = self.mask[kept]
            crop = int(mask.argmax(1).min()) if self.cache.joinable else 0
            self.cache.select(torch.tensor(kept, device=mask.device), crop)
            self.rows, self.mask = [self.rows[index] for index in kept], mask[:, crop:]
        return self

    def joined(self, other: "_Batch") -> "_Batch":
        width = max(self.cache.width, other.cache.width)
        self.mask = torch.cat([_left_padded(self.mask, width), _left_padded(other.mask, width)])
        self.cache.join(other.cache)
        self.rows = self.rows + other.rows
        return self


class Decoder:
    """Steps up to `limit` rows through the model at a time.

    `ends` are the ids that end an answer; `prefix_tokens` bounds what is kept of finished rows. An answer that does not
    fit the device's memory beside others is tried again with fewer beside it.
    """

    def __init__(self, model: Adapters, ends: Sequence[int], *, limit: int, prefix_tokens: int) -> None:
        self._adapters = model
        self.prefixes = Prefixes(prefix_tokens)
        self._arrived: SimpleQueue[Row] = SimpleQueue()
        self._waiting: deque[Row] = deque()
        self._batch: _Batch | None = None
        self._at_work: list[Row] = []
        self._ends = tuple(ends)
        self._limit = limit

    @property
    def rows(self) -> int:
        """Rows waiting and running."""
        return self._arrived.qsize() + len(self._waiting) + len(self._running)

    def answering_with(self, adapter: str) -> bool:
        """Whether a row under way goes through this adapter."""
        return any(row.adapter == adapter for row in (*self._waiting, *self._running))

    def add(self, rows: Sequence[Row]) -> None:
        """Rows to be answered; may be called while another thread steps."""
        for row in rows:
            self._arrived.put(row)

    def prune(self) -> None:
        """Takes in the rows that arrived and lets go of those that were dropped."""
        while not self._arrived.empty():
            self._waiting.append(self._arrived.get())
        for row in [row for row in self._waiting if row.dropped]:
            self._waiting.remove(row)
        if any(row.dropped for row in self._running):
            with torch.inference_mode():
                self._batch = self._batch and self._batch.without(lambda row: row.dropped)

    @torch.inference_mode()
    def step(self) -> None:
        """Reads the prompts of some waiting rows, then gives every row under way its next token."""
        try:
            self.prune()
            self._admit()
            self._advance()
        except torch.OutOfMemoryError as error:
            self._make_room(error)
        except RuntimeError as error:  # torch's name for whatever a forward pass ran into
            self._fail(error)
        except BaseException:
            self._start_over()
            raise

    @property
    def _running(self) -> list[Row]:
        return self._batch.rows if self._batch else []

    def _admit(self) -> None:
        joinable = self._batch is None or self._batch.cache.joinable
        if not self._waiting or not joinable or len(self._running) >= self._limit:
            return
        group = self._next_group()
        new = self._read(group)
        for row in group:
            self._waiting.remove(row)
        if new:
            self._batch = self._batch.joined(new) if self._batch else new

    def _next_group(self) -> list[Row]:
        """The first waiting rows that are worth reading together; a row with a saved beginning is read alone."""
        group: list[Row] = []
        longest = total = 0
        for row in self._first()[: self._limit - len(self._running)]:
            if not row.output:
                row.adapter = self._adapters.route(row.prompt.name)
            length = len(row.ids) + len(row.output)
            saved = self.prefixes.find(row.ids, row.adapter, row.salt)
            longest, total = max(longest, length), total + length
            padded = longest * (len(group) + 1)
            if group and (saved or padded > _READ_TOKENS or padded - total > _READ_PADDING):
                break
            group.append(row)
            if saved:
                break
        return group

    def _first(self) -> list[Row]:
        """What somebody waits for; when there is nothing of that, what stands in the background."""
        waited_for = [row for row in self._waiting if not row.prompt.background]
        return waited_for or list(self._waiting)

    def _read(self, rows: list[Row]) -> _Batch | None:
        """Puts the rows' prompts through the model and gives each its first token; None when none goes on after it."""
        self._at_work = rows
        texts = [[*row.ids, *row.output] for row in rows]
        cache = RowCache(self._adapters.model.config)
        start = self._reuse(rows[0], cache) if len(rows) == 1 and cache.joinable else 0
        width = max(map(len, texts))
        device = self._adapters.model.device
        ids = torch.tensor([[self._ends[0]] * (width - len(text)) + text for text in texts], device=device)
        mask = torch.tensor([[0] * (width - len(text)) + [1] * len(text) for text in texts], device=device)
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        logits = self._forward(rows, cache, ids[:, start:], mask, positions[:, start:])
        batch = _Batch(list(rows), cache, mask)
        return self._took(batch, logits)

    def _reuse(self, row: Row, cache: RowCache) -> int:
        found = None if row.output else self.prefixes.find(row.ids, row.adapter, row.salt)
        if found is None:
            return 0
        saved, columns = found
        cache.fill(saved.layers, columns)
        row.cached = columns
        return columns

    def _advance(self) -> None:
        if self._batch is None:
            return
        batch = self._batch
        self._at_work = batch.rows
        device = self._adapters.model.device
        ids = torch.tensor([[row.output[-1]] for row in batch.rows], device=device)
        positions = batch.mask.sum(1, keepdim=True)
        batch.mask = torch.cat([batch.mask, batch.mask.new_ones(len(batch.rows), 1)], dim=1)
        logits = self._forward(batch.rows, batch.cache, ids, batch.mask, positions)
        self._batch = self._took(batch, logits)

    def _forward(
        self, rows: Sequence[Row], cache: RowCache, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor
    ) -> torch.Tensor:
        """Float32 logits after the last column (rows x vocabulary)."""
        adapters = {"adapter_names": [row.adapter or "__base__" for row in rows]} if self._adapters.mixed else {}
        output = self._adapters.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache.cache,
            use_cache=True,
            logits_to_keep=1,
            **adapters,
        )
        return output.logits[:, -1].float()

    def _took(self, batch: _Batch, logits: torch.Tensor) -> _Batch | None:
        """Gives each row its logits; the batch without the rows that are done."""
        for index, row in enumerate(batch.rows):
            try:
                row.take(logits[index : index + 1])
            except RuntimeError as error:
                row.finish(error=LLMError(f"prompt {row.prompt.name!r} could not be answered: {_line(error)}"))
        for index, row in enumerate(batch.rows):
            self._save(batch.cache, index, row)
        return batch.without(lambda row: row.done)

    def _save(self, cache: RowCache, index: int, row: Row) -> None:
        read = (*row.ids, *row.output[:-1])
        if row.done and not row.error and cache.joinable and self.prefixes.wants(len(read)):
            layers = cache.row(index, cache.width - len(read), cache.width)
            self.prefixes.keep(Saved(read, row.adapter, layers, row.salt))

    def _start_over(self) -> None:
        """Sends running rows back to wait; they are read again with what they had, so nothing of them is lost."""
        self._waiting.extendleft(reversed([row for row in self._running if not row.done]))
        self._batch = None

    def _make_room(self, error: RuntimeError) -> None:
        self._start_over()
        self.prefixes.clear()
        if self._limit == 1:
            self._fail(error)
            return
        self._limit = max(1, self._limit // 2)
        logger.warning("the device's memory is full; going on with at most %d answers at a time", self._limit)

    def _fail(self, error: RuntimeError) -> None:
        """The rows at work fail; the others that ran with them are read again."""
        self._start_over()
        for row in self._at_work:
            if not row.done:
                row.finish(error=LLMError(f"prompt {row.prompt.name!r} could not be answered: {_line(error)}"))
        self._waiting = deque(row for row in self._waiting if not row.done)


def _left_padded(mask: torch.Tensor, width: int) -> torch.Tensor:
    return torch.nn.functional.pad(mask, (width - mask.shape[1], 0))


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
