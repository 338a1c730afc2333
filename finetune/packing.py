"""Traces as a chat model learns them: tokens under its own template, with a label on the assistant's alone, packed.

Several traces share a row. Those of one prompt begin alike, so a row holds their common beginning once and each trace
goes on from it, seeing that and itself: what is learned is the same, and less is read. Knows tokens and no weights.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import exp
from random import Random
from typing import TYPE_CHECKING

from finetune.traces.trace import Trace
from localmem.errors import BadInput
from localmem.llm.tokenizer import ChatTokenizer

if TYPE_CHECKING:
    import torch

NOT_LEARNED = -100  # the label of tokens that no loss is taken of


@dataclass(frozen=True, slots=True)
class Soft:
    """How a teacher spread its choice: probabilities of the options' first tokens, at the token before the answer."""

    at: int
    ids: tuple[int, ...]
    probabilities: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """Tokens that are learned from together, and where the teacher's distributions are known.

    `branches` says of each token which trace it belongs to, counted from 1; 0 is what all of them begin with. `prompt`
    is the name of the one that was asked.
    """

    ids: tuple[int, ...]
    labels: tuple[int, ...]
    positions: tuple[int, ...]
    branches: tuple[int, ...]
    soft: tuple[Soft, ...] = ()
    prompt: str = ""


def encode(trace: Trace, chat: ChatTokenizer) -> Row:
    """One trace: what was asked under the template, the answer, and the token that ends a turn.

    Of a whole dialogue, so with each message of the assistant, for a template that writes it on from turn to turn.
    """
    ids: list[int] = []
    labels: list[int] = []
    soft: Soft | None = None
    for number in _answers(trace):
        asked = chat.encode(trace.messages[:number], {})
        if asked[: len(ids)] != ids:
            raise BadInput(
                f"the chat template of {chat.folder} writes earlier turns anew, so trace {trace.id} cannot be learned "
                "whole; take another student"
            )
        told = [*_ids(chat, trace.messages[number].content), int(chat.tokenizer.eos_token_id)]
        labels = [*labels, *[NOT_LEARNED] * (len(asked) - len(ids)), *told]
        ids = [*asked, *told]
        soft = _soft(trace, chat, len(asked) - 1)
    return Row(
        tuple(ids),
        tuple(labels),
        tuple(range(len(ids))),
        (1,) * len(ids),
        (soft,) if soft else (),
        trace.metadata.prompt,
    )


def _answers(trace: Trace) -> list[int]:
    """Which messages are to be learned."""
    last = len(trace.messages) - 1
    if not trace.metadata.whole:
        return [last]
    return [number for number, message in enumerate(trace.messages) if message.role == "assistant"]


def pack(rows: Sequence[Row], size: int, seed: int) -> list[Row]:
    """Rows of at most `size` tokens, each of one prompt's traces, the longest first into the first that has room.

    The order of the rows is drawn by seed.
    """
    asked: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        asked[row.prompt].append(row)
    joined = [one for alike in asked.values() for one in _packed(alike, size)]
    Random(seed).shuffle(joined)  # noqa: S311  # no secret
    return joined


def _packed(rows: Sequence[Row], size: int) -> list[Row]:
    shared = _shared(rows)
    packs: list[list[Row]] = []
    room: list[int] = []
    for row in sorted(rows, key=lambda one: -len(one.ids)):
        more = len(row.ids) - shared
        place = next((n for n, left in enumerate(room) if left >= more), None)
        if place is None:
            packs.append([row])
            room.append(size - len(row.ids))
        else:
            packs[place].append(row)
            room[place] -= more
    return [_joined(held, shared) for held in packs]


def _shared(rows: Sequence[Row]) -> int:
    """How many tokens all of them begin with, ahead of the token from which the first learned one is told."""
    learned = min(next(at for at, label in enumerate(row.labels) if label != NOT_LEARNED) for row in rows)
    first, last = min(row.ids for row in rows), max(row.ids for row in rows)  # what these two share, all share
    alike = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    return min(alike, learned - 1)


def collate(rows: Sequence[Mapping[str, Row]]) -> "dict[str, torch.Tensor]":
    """A batch, padded with tokens that nothing sees and that are not learned.

    `attention_mask` (rows, 1, tokens, tokens) says which tokens each token sees. `soft_at` are
    (row, position), `soft_ids` and `soft_probabilities` have a row each of these, padded with -1 and 0.
    """
    import torch

    held = [one["row"] for one in rows]
    longest = max(len(row.ids) for row in held)

    def padded(values: Sequence[int], by: int) -> list[int]:
        return [*values, *[by] * (longest - len(values))]

    soft = [(number, one) for number, row in enumerate(held) for one in row.soft]
    widest = max((len(one.ids) for _, one in soft), default=1)
    return {
        "input_ids": torch.tensor([padded(row.ids, 0) for row in held]),
        "labels": torch.tensor([padded(row.labels, NOT_LEARNED) for row in held]),
        "position_ids": torch.tensor([padded(row.positions, 0) for row in held]),
        "attention_mask": _seen(torch.tensor([padded(row.branches, -1) for row in held])),
        "soft_at": torch.tensor([(number, one.at) for number, one in soft]).reshape(-1, 2),
        "soft_ids": torch.tensor([[*one.ids, *[-1] * (widest - len(one.ids))] for _, one in soft]).reshape(-1, widest),
        "soft_probabilities": torch.tensor(
            [[*one.probabilities, *[0.0] * (widest - len(one.ids))] for _, one in soft]
        ).reshape(-1, widest),
    }


def _seen(branches: "torch.Tensor") -> "torch.Tensor":
    """Of each token those before it in its own trace, or in what all of the row begin with, and itself."""
    own = branches[:, :, None] == branches[:, None, :]
    return (own | (branches == 0)[:, None, :]).tril()[:, None]


def _joined(rows: Sequence[Row], shared: int) -> Row:
    first = rows[0]
    starts = accumulate((len(row.ids) - shared for row in rows), initial=0)
    return Row(
        first.ids[:shared] + tuple(token for row in rows for token in row.ids[shared:]),
        first.labels[:shared] + tuple(label for row in rows for label in row.labels[shared:]),
        first.positions[:shared] + tuple(position for row in rows for position in row.positions[shared:]),
        (0,) * shared + tuple(number for number, row in enumerate(rows, 1) for _ in row.ids[shared:]),
        tuple(
            Soft(start + one.at, one.ids, one.probabilities)
            for start, row in zip(starts, rows, strict=False)
            for one in row.soft
        ),
        first.prompt,
    )


def _soft(trace: Trace, chat: ChatTokenizer, at: int) -> Soft | None:
    """None where the teacher gave no distribution, or where options begin with the same token."""
    about = trace.metadata
    if not about.choices:
        return None
    first = [_ids(chat, option)[0] for option in about.options]
    if len(set(first)) < len(first):
        return None
    return Soft(at, tuple(first), tuple(exp(about.choices.get(option, float("-inf"))) for option in about.options))


def _ids(chat: ChatTokenizer, text: str) -> list[int]:
    ids: list[int] = chat.tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids
