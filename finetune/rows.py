"""Traces as a chat model learns them: tokens under its own template, with a label on the assistant's alone, packed.

Several traces share a row, each with positions from 0, by which the model's attention keeps them apart. Knows tokens
and no weights.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp
from random import Random
from typing import TYPE_CHECKING

from finetune.traces import Trace
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
    """Tokens that are learned from together, and where the teacher's distributions are known."""

    ids: tuple[int, ...]
    labels: tuple[int, ...]
    positions: tuple[int, ...]
    soft: tuple[Soft, ...] = ()


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
    return Row(tuple(ids), tuple(labels), tuple(range(len(ids))), (soft,) if soft else ())


def _answers(trace: Trace) -> list[int]:
    """Which messages are to be learned."""
    last = len(trace.messages) - 1
    if not trace.metadata.whole:
        return [last]
    return [number for number, message in enumerate(trace.messages) if message.role == "assistant"]


def pack(rows: Sequence[Row], size: int, seed: int) -> list[Row]:
    """Rows of at most `size` tokens, the longest first into the first that has room; their order is drawn by seed."""
    packs: list[list[Row]] = []
    room: list[int] = []
    for row in sorted(rows, key=lambda one: -len(one.ids)):
        place = next((n for n, left in enumerate(room) if left >= len(row.ids)), None)
        if place is None:
            packs.append([row])
            room.append(size - len(row.ids))
        else:
            packs[place].append(row)
            room[place] -= len(row.ids)
    joined = [_joined(held) for held in packs]
    Random(seed).shuffle(joined)  # noqa: S311  # no secret
    return joined


def collate(rows: Sequence[Mapping[str, Row]]) -> "dict[str, torch.Tensor]":
    """A batch, padded with tokens that each stand alone and are not learned.

    `soft_at` are (row, position), `soft_ids` and `soft_probabilities` have a row each of these, padded with -1 and 0.
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
        "soft_at": torch.tensor([(number, one.at) for number, one in soft]).reshape(-1, 2),
        "soft_ids": torch.tensor([[*one.ids, *[-1] * (widest - len(one.ids))] for _, one in soft]).reshape(-1, widest),
        "soft_probabilities": torch.tensor(
            [[*one.probabilities, *[0.0] * (widest - len(one.ids))] for _, one in soft]
        ).reshape(-1, widest),
    }


def _joined(rows: Sequence[Row]) -> Row:
    starts = [sum(len(row.ids) for row in rows[:number]) for number in range(len(rows))]
    return Row(
        tuple(token for row in rows for token in row.ids),
        tuple(label for row in rows for label in row.labels),
        tuple(position for row in rows for position in row.positions),
        tuple(
            Soft(start + one.at, one.ids, one.probabilities)
            for start, row in zip(starts, rows, strict=True)
            for one in row.soft
        ),
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
