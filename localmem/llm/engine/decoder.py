"""Decoder: a changing batch of answers goes through the model together, one token a step.

Works on token ids; what a row does with its logits is the row's own matter. One thread at a time may call it.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue

import torch

from localmem.errors import LLMError
from localmem.llm.adapters import Adapters
from localmem.llm.engine.keyvalues import PrefixCache, RowCache, SavedRow
from localmem.llm.engine.row import Row

logger = logging.getLogger(__name__)

# Why a loop of our own and not `model.generate`: generate decodes a fixed batch until its longest answer is complete,
# so a short answer waits for a long one and a new prompt for both. Here a row joins between two steps and leaves when
# it is finished. And each row has its own format, sampler, adapter and stop strings, and some rows collect the
# probabilities of their options; in a call of generate none of these can differ by row.
#
# A step reads the prompts of some waiting rows, then decodes one token of every row in the batch. It reads one group
# at most, so the rows in the batch never wait for the reading of all that arrived. A group is limited in two ways.
# Padding included it has at most _READ_TOKENS tokens, which bounds the memory of a forward pass; and at most
# _READ_PADDING of them are padding, because reading a long and a short prompt one after the other is cheaper than
# reading the short one at the length of the long one. A row with a saved prefix is read alone, since the others would
# have to be padded by the columns of that prefix.
#
# The cache holds one token less than a row: the last token of the output has been picked but not read. It is read by
# the next step, and it is left out when a finished row is saved (`_save`).
#
# Errors. A forward pass that fails may have appended to the caches of some layers and not of others, so the batch
# cannot be used any more. No answer is lost by that: the rows return to the queue with their output so far, and
# are read again as prompt + output (`_start_over`). Their samplers keep their state, so an interrupted answer continues
# exactly as it would have. What happens then depends on the error. Out of memory: the saved prefixes are freed and the
# batch may only have half the rows from then on, down to one, where the row itself must be too large and fails. Another
# RuntimeError is torch's way to say that the pass was impossible, so the rows of this pass fail and no others. Anything
# else (a KeyboardInterrupt in the thread that happens to step) does not concern the rows: they go on in whichever
# thread steps next.
#
# Why background rows have no priority number: only rows that somebody waits for are read as long as there are any, and
# at most a few background prompts exist at a time (see llm/wrappers.py). A row in the batch is never interrupted.

_READ_TOKENS = 8192
_READ_PADDING = 256


@dataclass(slots=True)
class _Batch:
    """Rows in decoding, their keys and values, and the columns they use (rows x columns, 1 or 0; padding is left)."""

    rows: list[Row]
    cache: RowCache
    mask: torch.Tensor

    def without(self, leaves: Callable[[Row], bool]) -> "_Batch | None":
        staying = [index for index, row in enumerate(self.rows) if not leaves(row)]
        if not staying:
            return None
        if len(staying) < len(self.rows):
            mask = self.mask[staying]
            crop = int(mask.argmax(1).min()) if self.cache.joinable else 0
            self.cache.select(torch.tensor(staying, device=mask.device), crop)
            self.rows, self.mask = [self.rows[index] for index in staying], mask[:, crop:]
        return self

    def join(self, other: "_Batch") -> None:
        width = max(self.cache.width, other.cache.width)
        self.mask = torch.cat([_pad_left(self.mask, width), _pad_left(other.mask, width)])
        self.cache.join(other.cache)
        self.rows = self.rows + other.rows


class Decoder:
    """Decodes up to `limit` rows together.

    `ends` are the ids that end an answer; `prefix_tokens` limits the tokens of finished rows in the prefix cache. Where
    the device's memory does not suffice for an answer beside the others, it is tried again beside fewer.
    """

    def __init__(self, model: Adapters, ends: Sequence[int], *, limit: int, prefix_tokens: int) -> None:
        self._adapters = model
        self.prefixes = PrefixCache(prefix_tokens)
        self._arrivals: SimpleQueue[Row] = SimpleQueue()
        self._waiting: deque[Row] = deque()
        self._batch: _Batch | None = None
        self._in_pass: list[Row] = []
        self._ends = tuple(ends)
        self._limit = limit

    @property
    def rows(self) -> int:
        """Rows waiting and running."""
        return self._arrivals.qsize() + len(self._waiting) + len(self._running)

    def add(self, rows: Sequence[Row]) -> None:
        """Queues rows; may be called while another thread steps."""
        for row in rows:
            self._arrivals.put(row)

    def prune(self) -> None:
        """Collects the rows that arrived and removes those that were dropped."""
        while not self._arrivals.empty():
            self._waiting.append(self._arrivals.get())
        for row in [row for row in self._waiting if row.dropped]:
            self._waiting.remove(row)
        if any(row.dropped for row in self._running):
            with torch.inference_mode():
                self._batch = self._batch and self._batch.without(lambda row: row.dropped)

    @torch.inference_mode()
    def step(self) -> None:
        """Reads the prompts of some waiting rows, then decodes the next token of every row in the batch."""
        try:
            self.prune()
            self._admit()
            self._advance()
        except torch.OutOfMemoryError as error:
            self._free_memory(error)
        except RuntimeError as error:
            self._fail_pass(error)
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
        batch = self._read(group)
        for row in group:
            self._waiting.remove(row)
        if batch and self._batch:
            self._batch.join(batch)
        else:
            self._batch = batch or self._batch

    def _next_group(self) -> list[Row]:
        group: list[Row] = []
        longest = total = 0
        foreground = [row for row in self._waiting if not row.prompt.background]
        for row in (foreground or list(self._waiting))[: self._limit - len(self._running)]:
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

    def _read(self, rows: list[Row]) -> _Batch | None:
        """Reads the rows' prompts and decodes a first token of each; None when that finishes all of them."""
        self._in_pass = rows
        texts = [[*row.ids, *row.output] for row in rows]
        cache = RowCache(self._adapters.model.config)
        start = self._reuse(rows[0], cache) if len(rows) == 1 and cache.joinable else 0
        width = max(map(len, texts))
        device = self._adapters.model.device
        ids = torch.tensor([[self._ends[0]] * (width - len(text)) + text for text in texts], device=device)
        mask = torch.tensor([[0] * (width - len(text)) + [1] * len(text) for text in texts], device=device)
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        logits = self._forward(rows, cache, ids[:, start:], mask, positions[:, start:])
        return self._pick_tokens(_Batch(list(rows), cache, mask), logits)

    def _reuse(self, row: Row, cache: RowCache) -> int:
        match = None if row.output else self.prefixes.find(row.ids, row.adapter, row.salt)
        if match is None:
            return 0
        saved, columns = match
        cache.fill(saved.layers, columns)
        row.cached = columns
        return columns

    def _advance(self) -> None:
        if self._batch is None:
            return
        batch = self._batch
        self._in_pass = batch.rows
        device = self._adapters.model.device
        ids = torch.tensor([[row.output[-1]] for row in batch.rows], device=device)
        positions = batch.mask.sum(1, keepdim=True)
        batch.mask = torch.cat([batch.mask, batch.mask.new_ones(len(batch.rows), 1)], dim=1)
        logits = self._forward(batch.rows, batch.cache, ids, batch.mask, positions)
        self._batch = self._pick_tokens(batch, logits)

    def _forward(
        self, rows: Sequence[Row], cache: RowCache, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor
    ) -> torch.Tensor:
        """Float32 logits after the last column (rows x vocabulary)."""
        adapters = {"adapter_names": [row.adapter or "__base__" for row in rows]} if self._adapters.needs_names else {}
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

    def _pick_tokens(self, batch: _Batch, logits: torch.Tensor) -> _Batch | None:
        for index, row in enumerate(batch.rows):
            try:
                row.take(logits[index : index + 1])
            except RuntimeError as error:
                row.finish(error=_answer_error(row, error))
        for index, row in enumerate(batch.rows):
            self._save(batch.cache, index, row)
        return batch.without(lambda row: row.finished)

    def _save(self, cache: RowCache, index: int, row: Row) -> None:
        ids = (*row.ids, *row.output[:-1])
        if row.finished and not row.error and cache.joinable and self.prefixes.accepts(len(ids)):
            layers = cache.row(index, cache.width - len(ids), cache.width)
            self.prefixes.add(SavedRow(ids, row.adapter, layers, row.salt))

    def _start_over(self) -> None:
        self._waiting.extendleft(reversed([row for row in self._running if not row.finished]))
        self._batch = None

    def _free_memory(self, error: RuntimeError) -> None:
        self._start_over()
        self.prefixes.clear()
        if self._limit == 1:
            self._fail_pass(error)
            return
        self._limit = max(1, self._limit // 2)
        logger.warning("the device's memory is full; continuing with at most %d answers at a time", self._limit)

    def _fail_pass(self, error: RuntimeError) -> None:
        """Fails the rows of the current pass; all others are read again."""
        self._start_over()
        for row in self._in_pass:
            if not row.finished:
                row.finish(error=_answer_error(row, error))
        self._waiting = deque(row for row in self._waiting if not row.finished)


def _answer_error(row: Row, error: Exception) -> LLMError:
    reason = " ".join(str(error).split())[:300]
    return LLMError(f"prompt {row.prompt.name!r} could not be answered: {reason}")


def _pad_left(mask: torch.Tensor, width: int) -> torch.Tensor:
    return torch.nn.functional.pad(mask, (width - mask.shape[1], 0))


class Turns:
    """Threads that wait for shared work do it in turns, so that the work needs no thread of its own.

    `step` does a small part of the work; one thread at a time calls it. A thread that stops waiting stops working; work
    that only it waited for pauses.

    `tidy` is called, by any thread, whenever no step runs and work may have been given up; it must be quick and may be
    called often.
    """

    def __init__(self, step: Callable[[], None], tidy: Callable[[], None]) -> None:
        self._step = step
        self._tidy = tidy
        self._changed = threading.Condition()
        self._busy = False

    def work_until(self, ready: Callable[[], bool]) -> None:
        """Returns once `ready()`, which a step of this thread or of another one may bring about."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: ready() or not self._busy)
                if ready():
                    return
                self._busy = True
            try:
                self._step()
            finally:
                self._release()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """No step runs inside the block."""
        with self._changed:
            self._changed.wait_for(lambda: not self._busy)
            self._busy = True
        try:
            yield
        finally:
            self._release()

    def tidy(self) -> None:
        """Tidies now, or when the current step ends. Never waits, since a finaliser may call it inside a step."""
        with self._changed:
            if not self._busy:
                self._tidy()

    def _release(self) -> None:
        with self._changed:
            self._busy = False
            self._tidy()
            self._changed.notify_all()
