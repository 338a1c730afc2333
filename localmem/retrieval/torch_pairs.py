"""The scores of a PairNetwork whose linear layers compute in few bits, for a process that has imported torch.

In int8 three times as fast as in float32, whose scores they are within 0.1. A processor with AMX computes them in
bfloat16, with which it is faster still and closer. Does not depend on files or on tokenizers.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence, Sized
from functools import cache
from itertools import chain, pairwise
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from localmem.llm.device import core_count
from localmem.retrieval.bert_model import Rows
from localmem.retrieval.numpy_pairs import PairShape
from localmem.retrieval.pair_network import Linear, PairNetwork, float_linear
from localmem.retrieval.torch_threads import one_thread_a_core

Item = TypeVar("Item", bound=Sized)
Result = TypeVar("Result")
Int8Weights = Mapping[str, tuple[NDArray[np.int8], Rows]]  # rows of a weight, and the scale of each row

# Each core computes a few pairs at a time by itself. All at once took nearly twice as long: what a layer computes of
# them fits no core's cache, and its memory is taken from the system anew at each operation.
_PART = 3
_THREADS = one_thread_a_core("localmem-pairs")


class TorchPairs:
    """`weights` by their names in BERT, and the head's; `stored` are those of them that are stored as int8."""

    def __init__(self, shape: PairShape, weights: Mapping[str, Rows], stored: Int8Weights) -> None:
        tensors = {name: torch.from_numpy(np.asarray(value)) for name, value in weights.items()}
        has_amx = torch.cpu.get_capabilities().get("amx_bf16", False)
        linear = _bfloat16_linear(tensors) if has_amx else _int8_linear(tensors, stored)
        self._network = PairNetwork(shape, tensors, linear)
        (text,) = self.read_texts([[0]])
        self.compare(text, [text])  # packs the layers, which must not happen on two threads at a time

    def read_texts(self, texts: Sequence[Sequence[int]]) -> list[Rows]:
        """The (tokens, width) states of each text after the lower layers."""
        return _share(lambda part: [states.numpy() for states in self._network.read(part)], texts)

    def compare(self, query: Rows, texts: Sequence[Rows]) -> Rows:
        """The score of the query with each text, all as `read_texts` gave them."""

        def score(part: Sequence[Rows]) -> list[float]:
            scores: list[float] = self._network.compare([(first, torch.from_numpy(text)) for text in part]).tolist()
            return scores

        first = torch.from_numpy(query)
        return np.array(_share(score, texts), dtype=np.float32)


def _share(call: Callable[[Sequence[Item]], list[Result]], items: Sequence[Item]) -> list[Result]:
    """What `call` returns for the items, a few of which, of about one length, are computed on each core at a time."""

    def run(part: Sequence[Item]) -> list[Result]:
        with torch.inference_mode():
            return call(part)

    count = min(core_count() * -(-len(items) // (core_count() * _PART)), len(items))  # as many for each core
    bounds = [len(items) * number // count for number in range(count + 1)]
    order = sorted(range(len(items)), key=lambda place: -len(items[place]))
    parts = [[items[place] for place in order[start:end]] for start, end in pairwise(bounds)]
    results = dict(zip(order, chain.from_iterable(_THREADS.map(run, parts)), strict=True))
    return [results[place] for place in range(len(items))]


def _bfloat16_linear(weights: Mapping[str, Tensor]) -> Linear:
    """Linear layers in bfloat16."""

    @cache
    def halves(names: tuple[str, ...], part: str) -> Tensor:
        return torch.cat([weights[f"{name}.{part}"] for name in names]).bfloat16()

    def linear(names: tuple[str, ...], states: Tensor) -> Tensor:
        return functional.linear(states.bfloat16(), halves(names, "weight"), halves(names, "bias"))

    return linear


def _int8_linear(weights: Mapping[str, Tensor], stored: Int8Weights) -> Linear:
    """Linear layers in int8, whose inputs are quantised as they come; in float32 where the processor cannot."""
    # torch means to remove this function, and the int8 layers may then be missing on some machines.
    if torch.backends.quantized.engine == "none" or not hasattr(torch, "quantize_per_channel"):
        return float_linear(weights)
    packed: dict[tuple[str, ...], object] = {}

    def rows(name: str) -> tuple[Tensor, Tensor]:
        """A weight as int8 rows and their scales."""
        if name in stored:
            values, scales = stored[name]
            return torch.from_numpy(values), torch.from_numpy(scales)
        largest = weights[name].abs().amax(1).clamp_min(1e-8) / 127
        return (weights[name] / largest[:, None]).round().to(torch.int8), largest

    def pack(names: tuple[str, ...]) -> object:
        parts, scales = zip(*(rows(f"{name}.weight") for name in names), strict=True)
        values, scale = torch.cat(parts).float(), torch.cat(scales).double()
        zeros = torch.zeros(len(scale), dtype=torch.long)
        with warnings.catch_warnings():  # that it is deprecated
            warnings.simplefilter("ignore", UserWarning)
            quantised = torch.quantize_per_channel(values * scale[:, None].float(), scale, zeros, 0, torch.qint8)
        return torch.ops.quantized.linear_prepack(quantised, torch.cat([weights[f"{name}.bias"] for name in names]))

    def linear(names: tuple[str, ...], states: Tensor) -> Tensor:
        if names not in packed:
            packed[names] = pack(names)
        result: Tensor = torch.ops.quantized.linear_dynamic(states, packed[names])
        return result

    return linear
