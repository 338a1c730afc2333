"""Traces as training rows of a chat model: tokens under its own template, labels on the assistant's tokens, packed.

Several traces share a row. Traces of the same prompt begin alike, so a row holds their common prefix once, and each
trace continues from it and attends to that prefix and to itself only. The loss is that of separate rows, with fewer
tokens to compute. Does not depend on model weights.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import exp
from random import Random
from typing import TYPE_CHECKING

from finetune.traces.trace import Trace
from localmem.llm.tokenizer import ChatTokenizer

if TYPE_CHECKING:
    import torch

IGNORED = -100  # label of the tokens that are not learned


@dataclass(frozen=True, slots=True)
class SoftTarget:
    """The teacher's distribution over a choice: the probabilities of the options' first tokens.

    `at` is the position of the token before the answer.
    """

    at: int
    ids: tuple[int, ...]
    probabilities: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class PackedRow:
    """Tokens of one or several traces of the prompt named `prompt`, and the teacher's distributions where known.

    `branches` gives for each token the number of its trace, from 1, or 0 for the common prefix.
    """

    ids: tuple[int, ...]
    labels: tuple[int, ...]
    positions: tuple[int, ...]
    branches: tuple[int, ...]
    soft: tuple[SoftTarget, ...] = ()
    prompt: str = ""

    @property
    def traces(self) -> int:
        """The number of traces in the row."""
        return max(self.branches)


def encode(trace: Trace, chat: ChatTokenizer) -> PackedRow:
    """A row of one trace: the prompt under the chat template, the answer, and the token that ends a turn."""
    prefix = chat.encode(trace.context, {})
    answer = [*_token_ids(chat, trace.answer), int(chat.tokenizer.eos_token_id)]
    ids, labels = (*prefix, *answer), (*[IGNORED] * len(prefix), *answer)
    soft = _soft_target(trace, chat, len(prefix) - 1)
    positions, branches = tuple(range(len(ids))), (1,) * len(ids)
    return PackedRow(ids, labels, positions, branches, (soft,) if soft else (), trace.metadata.prompt)


def pack(rows: Sequence[PackedRow], size: int, seed: int) -> list[PackedRow]:
    """Pack rows of the same prompt into rows of at most `size` tokens, longest first, and shuffle them by `seed`."""
    by_prompt: defaultdict[str, list[PackedRow]] = defaultdict(list)
    for row in rows:
        by_prompt[row.prompt].append(row)
    packed = [row for group in by_prompt.values() for row in _first_fit(group, size)]
    Random(seed).shuffle(packed)  # noqa: S311  # not used for security
    return packed


def collate(examples: Sequence[Mapping[str, PackedRow]]) -> "dict[str, torch.Tensor]":
    """A batch, pad with tokens that nothing attends to and that are not learned.

    `attention_mask` (rows, 1, tokens, tokens) gives the tokens that each token attends to. `soft_at` holds (row,
    position) pairs; `soft_ids` and `soft_probabilities` have a line for each of them, pad with -1 and 0.
    """
    import torch

    rows = [example["row"] for example in examples]
    longest = max(len(row.ids) for row in rows)

    def pad(values: Sequence[int], fill: int) -> list[int]:
        return [*values, *[fill] * (longest - len(values))]

    soft = [(number, target) for number, row in enumerate(rows) for target in row.soft]
    widest = max((len(target.ids) for _, target in soft), default=1)
    ids = [[*target.ids, *[-1] * (widest - len(target.ids))] for _, target in soft]
    probabilities = [[*target.probabilities, *[0.0] * (widest - len(target.ids))] for _, target in soft]
    return {
        "input_ids": torch.tensor([pad(row.ids, 0) for row in rows]),
        "labels": torch.tensor([pad(row.labels, IGNORED) for row in rows]),
        "position_ids": torch.tensor([pad(row.positions, 0) for row in rows]),
        "attention_mask": _attention(torch.tensor([pad(row.branches, -1) for row in rows])),
        "soft_at": torch.tensor([(number, target.at) for number, target in soft]).reshape(-1, 2),
        "soft_ids": torch.tensor(ids).reshape(-1, widest),
        "soft_probabilities": torch.tensor(probabilities).reshape(-1, widest),
    }


def _first_fit(rows: Sequence[PackedRow], size: int) -> list[PackedRow]:
    """First-fit decreasing: each row goes into the first pack with room for what it adds to the common prefix."""
    prefix = _common_prefix(rows)
    packs: list[list[PackedRow]] = []
    room: list[int] = []
    for row in sorted(rows, key=lambda row: -len(row.ids)):
        added = len(row.ids) - prefix
        place = next((number for number, free in enumerate(room) if free >= added), None)
        if place is None:
            packs.append([row])
            room.append(size - len(row.ids))
        else:
            packs[place].append(row)
            room[place] -= added
    return [_join(group, prefix) for group in packs]


def _common_prefix(rows: Sequence[PackedRow]) -> int:
    """The number of tokens that all rows begin with, before the token that predicts the first learned one."""
    learned = min(next(at for at, label in enumerate(row.labels) if label != IGNORED) for row in rows)
    # The common prefix of a sorted list is that of its first and last element.
    first, last = min(row.ids for row in rows), max(row.ids for row in rows)
    common = next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return min(common, learned - 1)


def _join(rows: Sequence[PackedRow], prefix: int) -> PackedRow:
    first = rows[0]
    starts = accumulate((len(row.ids) - prefix for row in rows), initial=0)
    return PackedRow(
        first.ids[:prefix] + tuple(token for row in rows for token in row.ids[prefix:]),
        first.labels[:prefix] + tuple(label for row in rows for label in row.labels[prefix:]),
        first.positions[:prefix] + tuple(position for row in rows for position in row.positions[prefix:]),
        (0,) * prefix + tuple(number for number, row in enumerate(rows, 1) for _ in row.ids[prefix:]),
        tuple(
            SoftTarget(start + target.at, target.ids, target.probabilities)
            for start, row in zip(starts, rows, strict=False)
            for target in row.soft
        ),
        first.prompt,
    )


def _attention(branches: "torch.Tensor") -> "torch.Tensor":
    """Each token attends to itself and to earlier tokens of its own trace or of the common prefix."""
    own = branches[:, :, None] == branches[:, None, :]
    return (own | (branches == 0)[:, None, :]).tril()[:, None]


def _soft_target(trace: Trace, chat: ChatTokenizer, at: int) -> SoftTarget | None:
    """None if the teacher gave no distribution, or if two options begin with the same token."""
    metadata = trace.metadata
    if not metadata.choices:
        return None
    first = [_token_ids(chat, option)[0] for option in metadata.options]
    if len(set(first)) < len(first):
        return None
    probabilities = (exp(metadata.choices.get(option, float("-inf"))) for option in metadata.options)
    return SoftTarget(at, tuple(first), tuple(probabilities))


def _token_ids(chat: ChatTokenizer, text: str) -> list[int]:
    ids: list[int] = chat.tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids
