"""TwoStageReranker: a small reranker scores all texts, and a larger network scores the likeliest of them again.

The larger network is an encoder that reads a query and a text together. What it learned is a LoRA adapter (Hu et al.,
ICLR 2022) and a head, a hundredth of its size, which are added to the encoder's own weights when these load. It also
tells which words of a text answer, as readers of SQuAD 2.0 do (Devlin et al., NAACL 2019). Does not depend on what is
ranked or on how the network was trained.
"""

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from localmem.errors import BadSettings, BadVectors, ModelDamaged
from localmem.files import read_json
from localmem.llm.device import fastest_cpu_dtype, one_at_a_time, quiet_loading, resolve_device, resolve_dtype
from localmem.retrieval.base import QueryReader, Reranker, WordShare
from localmem.retrieval.bert import weights_checksum
from localmem.weights import model_path

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray
    from torch import Tensor
    from transformers import PreTrainedModel

SETTINGS, WEIGHTS = "two_stage.json", "adapter.safetensors"
DOWN, UP = ".lora_A", ".lora_B"  # end the names of the two factors of what a layer's weight gains
HEAD = "head."  # begins the names of the head's weights
WORDS = f"{HEAD}words."  # begins those of what tells words
_TEXT = 1  # the number of the text in a pair
_LEAST = 1e-4  # the least probability of a score


@dataclass(frozen=True, slots=True)
class TwoStageSettings:
    """What two_stage.json holds. Of the `count` likeliest texts by the reranker `first` a larger network reads `window`
    tokens of each pair.

    Their log-odds are `scale` x the network's output + `earlier` x those of `first` + `shift`. A layer's weight gains
    `gain` x the product of its factors.
    """

    base: str
    base_sha256: str
    first: str
    count: int
    window: int
    gain: float
    scale: float = 1.0
    earlier: float = 0.0
    shift: float = 0.0


class FirstReranker(Reranker, QueryReader, Protocol):
    """What scores all texts."""


class TwoStageReranker:
    """Scores from 0 to 1. The larger network loads at the first score; for many threads.

    Of a query in a language that the first reranker does not know it says nothing either. `device` is as
    SentenceEncoder's. Raises ModelMissing at once without the encoder, BadSettings for one with other weights.
    """

    def __init__(self, folder: Path, first: FirstReranker, device: str = "auto") -> None:
        self.name = folder.name
        self.first = first
        self._folder = folder
        self._settings = read_settings(folder)
        self._base = _base_folder(self._settings)
        self._device = device
        self._guard = threading.Lock()
        self._loaded: PairScorer | None = None

    @property
    def query_identity(self) -> str:
        return self.first.query_identity

    def read_query(self, query: str) -> "NDArray[np.float32] | None":
        """As the first reranker reads it."""
        return self.first.read_query(query)

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """How likely each text is to answer the query; those that are not scored again are less likely than the rest.

        Raises BadVectors for scores that are not finite.
        """
        scores = self.first.score(query, texts)
        if not scores or self.read_query(query) is None:
            return scores
        settings = self._settings
        earlier = log_odds(scores)
        likeliest = np.argsort(-earlier, kind="stable")[: settings.count]
        outputs = self._load().score(query, [texts[place] for place in likeliest])
        if not np.isfinite(outputs).all():
            raise BadVectors(f"{self.name} returned scores that are not finite; pull {settings.base} again")
        again = settings.scale * outputs + settings.earlier * earlier[likeliest] + settings.shift
        final = np.minimum(earlier, again.min())
        final[likeliest] = again
        return [float(score) for score in 1 / (1 + np.exp(-final))]

    def find_words(self, query: str, texts: Sequence[str]) -> list[list[WordShare]]:
        """Which words of each text answer; what of a text is beyond the window has no share."""
        return self._load().find_words(query, texts) if texts else []

    def _load(self) -> "PairScorer":
        with self._guard:
            if self._loaded is None:
                base, device = self._base, resolve_device(self._device)
                if weights_checksum(base / "model.safetensors") != self._settings.base_sha256:
                    raise BadSettings(
                        f"{self.name} was trained on other weights of {self._settings.base} than those in {base}; "
                        "pull them again"
                    )
                dtype = resolve_dtype("auto", device, cpu=fastest_cpu_dtype() if device == "cpu" else "float32")
                body = load_body(base)
                learned = _read_weights(self._folder / WEIGHTS)
                add_factors(body, learned, self._settings.gain)
                head = {name: weight.float().to(device) for name, weight in learned.items() if name.startswith(HEAD)}
                self._loaded = PairScorer(base, body.to(device=device, dtype=dtype), head, self._settings.window)
            return self._loaded


def log_odds(scores: Sequence[float]) -> "NDArray[np.float64]":
    """(n,) log-odds of probabilities, none of them beyond those of 1 in 10,000."""
    likely = np.clip(np.array(scores, dtype=np.float64), _LEAST, 1 - _LEAST)
    return np.log(likely / (1 - likely))


class PairScorer:
    """An encoder over pairs and a head over the state of their first token."""

    def __init__(self, base: Path, body: "PreTrainedModel", head: "Mapping[str, Tensor]", window: int) -> None:
        self._tokenize = PairTokenizer(base, window)
        self._body = body
        self._head = head

    def score(self, query: str, texts: Sequence[str]) -> "NDArray[np.float64]":
        """(n,) outputs, not yet log-odds."""
        import torch

        pairs = self._tokenize([(query, text) for text in texts])
        with torch.inference_mode():
            outputs = score_states(self._head, read_pairs(self._body, pairs.ids, pairs.mask))
        numbers: NDArray[np.float64] = outputs.cpu().numpy().astype(np.float64)
        return numbers

    def find_words(self, query: str, texts: Sequence[str]) -> list[list[WordShare]]:
        """For each text its tokens with their shares; none where the head never learned words."""
        import torch

        if f"{WORDS}weight" not in self._head:
            return [[] for _ in texts]
        pairs = self._tokenize([(query, text) for text in texts])
        with torch.inference_mode():
            logs = share_tokens(self._head, read_pairs(self._body, pairs.ids, pairs.mask), pairs.may_answer)
        rows = logs.exp().tolist()
        return [
            [WordShare(*place, share) for place, share in zip(places, row, strict=False) if place[1]]
            for places, row in zip(pairs.places, rows, strict=True)
        ]


class Pairs(NamedTuple):
    """Queries with texts as tokens, padded on the right.

    `ids`, the attention `mask`, and `may_answer` are (n, longest): true for the text's tokens, and for the first, which
    stands for "no answer here". `places` has where each token of a text begins and ends there, (0, 0) for others.
    """

    ids: "Tensor"
    mask: "Tensor"
    may_answer: "Tensor"
    places: list[list[tuple[int, int]]]


class PairTokenizer:
    """The tokens of queries with texts; of a pair over the window the longer text is truncated."""

    def __init__(self, base: Path, window: int) -> None:
        from tokenizers import Tokenizer

        self._tokenizer: Tokenizer = Tokenizer.from_file(str(base / "tokenizer.json"))
        self._tokenizer.enable_truncation(window)
        self._tokenizer.encode_special_tokens = True  # "</s>" in a text is words
        padding = self._tokenizer.padding or {}
        self._tokenizer.enable_padding(pad_id=padding.get("pad_id", 0))

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> Pairs:
        import torch

        rows = self._tokenizer.encode_batch(list(pairs))
        in_text = [[side == _TEXT for side in row.sequence_ids] for row in rows]
        may_answer = torch.tensor(in_text)
        may_answer[:, 0] = True
        places = [
            [place if inside else (0, 0) for place, inside in zip(row.offsets, flags, strict=True)]
            for row, flags in zip(rows, in_text, strict=True)
        ]
        ids, mask = torch.tensor([row.ids for row in rows]), torch.tensor([row.attention_mask for row in rows])
        return Pairs(ids, mask, may_answer, places)


def read_pairs(body: "torch.nn.Module", ids: "Tensor", mask: "Tensor") -> "Tensor":
    """(n, longest, width) states of the encoder for pairs of tokens."""
    device = next(body.parameters()).device
    states: Tensor = body(input_ids=ids.to(device), attention_mask=mask.to(device)).last_hidden_state
    return states.float()


def score_states(head: "Mapping[str, Tensor]", states: "Tensor") -> "Tensor":
    """(n,) outputs of the network, of the state of the first token."""
    import torch

    inner = torch.tanh(_project(head, "dense", states[:, 0]))
    return _project(head, "output", inner)[:, 0]


def share_tokens(head: "Mapping[str, Tensor]", states: "Tensor", may_answer: "Tensor") -> "Tensor":
    """(n, longest) logarithms of the tokens' shares in the answer."""
    logits = _project(head, "words", states)[..., 0]
    return logits.masked_fill(~may_answer.to(logits.device), float("-inf")).log_softmax(-1)


def _project(head: "Mapping[str, Tensor]", name: str, states: "Tensor") -> "Tensor":
    import torch

    return torch.nn.functional.linear(states, head[f"{HEAD}{name}.weight"], head[f"{HEAD}{name}.bias"])


def load_body(base: Path) -> "PreTrainedModel":
    """The encoder in a folder, in float32 on the CPU. Raises ModelDamaged for weights that transformers cannot load."""
    with one_at_a_time():
        from transformers import AutoModel

        try:
            with quiet_loading():
                body: PreTrainedModel = AutoModel.from_pretrained(
                    str(base), local_files_only=True, trust_remote_code=False, add_pooling_layer=False, dtype="float32"
                )
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ModelDamaged(f"{base} cannot be loaded ({reason}): pull {base.name} again") from error
    return body.eval()


def add_factors(body: "torch.nn.Module", learned: "Mapping[str, Tensor]", gain: float) -> None:
    """Add to each layer's weight the product of its factors."""
    weights = dict(body.named_parameters())
    for name, down in learned.items():
        if name.endswith(DOWN):
            layer = name.removesuffix(DOWN)
            weights[f"{layer}.weight"].data += gain * (learned[f"{layer}{UP}"].float() @ down.float())


def read_settings(folder: Path) -> TwoStageSettings:
    """What two_stage.json in a folder holds. Raises BadInput for other content."""
    return read_json(folder / SETTINGS, TwoStageSettings)


def _base_folder(settings: TwoStageSettings) -> Path:
    return Path(settings.base) if Path(settings.base).is_dir() else model_path(settings.base)


def save_two_stage(folder: Path, settings: Mapping[str, object], learned: "Mapping[str, Tensor]") -> None:
    """Write the settings, and the adapter and the head in float16."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: weight.detach().cpu().half().contiguous() for name, weight in learned.items()}, folder / WEIGHTS)
    (folder / WEIGHTS).chmod(0o644)  # safetensors makes it readable by its owner only
    (folder / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def _read_weights(file: Path) -> "dict[str, Tensor]":
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(str(file))
    except (OSError, SafetensorError) as error:
        raise ModelDamaged(f"{file} cannot be read ({error}): install it again") from error
