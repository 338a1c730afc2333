"""Scoring replies in a file against references, together and one by one.

A line of JSONL is {"prediction": "...", "reference": "..."}, with a list `references` if several are equally right, an
optional `id`, and, for perplexity, the `prompt` as a list of {"role", "content"}. Models load when a metric first needs
them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field

from localmem.config import Settings
from localmem.errors import BadInput
from localmem.evaluation.datasets import msc_cc
from localmem.evaluation.datasets.readers import Record
from localmem.evaluation.metrics.model_based import BertScore, Likelihood, Scorer, mauve, perplexity
from localmem.evaluation.metrics.text import KINDS, Order, bleu, distinct, rouge, token_f1
from localmem.files import parse_json, read_lines
from localmem.retrieval.base import Encoder
from localmem.retrieval.encoder import SentenceEncoder
from localmem.types import Message
from localmem.weights.folder import model_folder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MetricName = Literal["bleu", "rouge", "f1", "distinct", "bertscore", "mauve", "perplexity"]
RunMetric = MetricName | Literal["meaning"]  # meaning: sentences of a memory against gold ones, by their vectors
LEXICAL_METRICS: tuple[MetricName, ...] = ("bleu", "rouge", "f1", "distinct")  # those that need no model
_CURE = "give JSON lines with `prediction` and `reference`"
ORDERS: tuple[Order, ...] = (1, 2, 4)  # of BLEU


class TextRecipe(BaseModel):
    """The options of `localmem eval text`."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    metrics: tuple[MetricName, ...] = LEXICAL_METRICS
    """Metric to compute."""
    stem: bool = False
    """Compare Porter stems in ROUGE."""
    encoder: str | None = None
    """Encoder for BERTScore, by name or folder; by default that of the settings."""
    layers: int | None = Field(default=None, ge=1)
    """Layer of the encoder for BERTScore; by default the last."""
    adapter: Path | None = None
    """Folder of an adapter on the backbone, for MAUVE and perplexity."""
    device: str = "auto"
    """Device for models: auto, cpu or cuda."""


@dataclass(frozen=True, slots=True)
class ScorableReply:
    """A reply, the equally right references, and the prompt that the model saw."""

    id: str
    text: str
    golds: tuple[str, ...]
    prompt: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplyScores:
    """Each metric's value over all replies, and its values by reply if it has any."""

    overall: Mapping[str, float] = field(default_factory=dict)
    each: Mapping[str, Sequence[float]] = field(default_factory=dict)


class ScoringModels:
    """The models of settings and recipe, each loaded when a metric first needs it; `names` lists the loaded ones."""

    def __init__(self, settings: Settings, recipe: TextRecipe) -> None:
        self._settings, self._recipe = settings, recipe
        self.names: dict[str, str] = {}

    @cached_property
    def encoder(self) -> BertScore:
        """The encoder of BERTScore."""
        name = self._recipe.encoder or self._settings.retrieval.encoder
        score = BertScore(model_folder(name), layers=self._recipe.layers, device=self._recipe.device)
        self.names["encoder"] = f"{name}, layer {score.layers}"
        return score

    def similarities(self, memories: Sequence[str], golds: Sequence[str]) -> "NDArray[np.float32]":
        """(memories, golds) float32: cosines of the vectors that the settings' encoder gives."""
        sides = [self._vectors.encode(side, "passage") for side in (list(memories), list(golds))]
        similarities: NDArray[np.float32] = sides[0] @ sides[1].T
        return similarities

    @cached_property
    def _vectors(self) -> Encoder:
        name = self._recipe.encoder or self._settings.retrieval.encoder
        self.names["vectors"] = name
        return SentenceEncoder(model_folder(name), name=name, device=self._recipe.device)

    @cached_property
    def backbone(self) -> Scorer:
        """The backbone of the settings."""
        name, adapter = self._settings.model, self._recipe.adapter
        self.names["model"] = name + (f" with {adapter.name}" if adapter else "")
        return Scorer(model_folder(name), adapter=adapter, device=self._recipe.device)


class _Message(Record):
    role: Literal["system", "user", "assistant"]
    content: str


class _Line(Record):
    prediction: str
    reference: str | None = None
    references: list[str] = Field(default_factory=list)
    id: str | None = None
    prompt: list[_Message] = Field(default_factory=list)


def read_replies(path: Path) -> list[ScorableReply]:
    """The replies in a file. Raises BadInput with file and line."""
    replies: list[ScorableReply] = []
    for place, text in read_lines(path, _CURE):
        line = parse_json(place, text, _Line, _CURE)
        golds = tuple(text for text in [line.reference, *line.references] if text and text.strip())
        if not golds:
            raise BadInput(f"{place}: there is no reference; add `reference` or `references`")
        prompt = tuple(Message(message.role, message.content) for message in line.prompt)
        replies.append(ScorableReply(line.id or str(len(replies) + 1), line.prediction, golds, prompt))
    if not replies:
        raise BadInput(f"{path} contains no prediction; {_CURE}")
    return replies


def read_baseline_replies(path: Path) -> list[ScorableReply]:
    """The baseline's replies in a file of msc_cc, with what was really said as the reference."""
    replies = [ScorableReply(item.id, item.reply, (item.reference,)) for item in msc_cc.baseline(path)]
    if not replies:
        raise BadInput(f"{path} contains no reply with a following turn; use a file of msc_cc")
    return replies


def score_replies(
    replies: Sequence[ScorableReply], names: Sequence[MetricName], *, models: ScoringModels, stem: bool = False
) -> ReplyScores:
    """These metrics of all replies. BLEU is from 0 to 100, and its overall value is not a mean.

    Perplexity is that of the references.
    """
    overall: dict[str, float] = {}
    each: dict[str, Sequence[float]] = {}
    texts, golds = [reply.text for reply in replies], [reply.golds for reply in replies]
    for name in names:
        values: dict[str, Sequence[float]] = {}  # by reply; their means are the overall values
        match name:
            case "bleu":
                scores = {f"BLEU-{order}": bleu(texts, golds, order) for order in ORDERS}
                overall |= {key: score.corpus for key, score in scores.items()}
                each |= {key: score.each for key, score in scores.items()}
            case "rouge":
                kinds = rouge(texts, golds, KINDS, stem=stem)
                values = {f"ROUGE-{kind.removeprefix('rouge')}": row for kind, row in kinds.items()}
            case "f1":
                values = {"F1": [max(token_f1(reply.text, gold) for gold in reply.golds) for reply in replies]}
            case "distinct":
                overall |= {f"Distinct-{order}": distinct(texts, order) for order in (1, 2)}
            case "bertscore":
                values = {"BERTScore": _best_bert_scores(replies, models.encoder)}
            case "mauve":
                ours = [text for text in texts if text.strip()]  # an empty reply has no vector
                vectors = (models.backbone.features(side) for side in (ours, [gold[0] for gold in golds]))
                overall["MAUVE"] = mauve(*vectors)
            case "perplexity":
                likelihoods = _likelihoods(replies, models)
                overall["perplexity"] = perplexity(likelihoods)
                each["perplexity"] = [likelihood.perplexity for likelihood in likelihoods]
        overall |= {key: fmean(row) for key, row in values.items()}
        each |= values
    return ReplyScores(overall, each)


def _best_bert_scores(replies: Sequence[ScorableReply], encoder: BertScore) -> list[float]:
    """BERTScore's F1 against the closest reference."""
    pairs = [(index, reply.text, gold) for index, reply in enumerate(replies) for gold in reply.golds]
    overlaps = encoder.score([text for _, text, _ in pairs], [gold for _, _, gold in pairs])
    best = [0.0] * len(replies)
    for (index, _, _), overlap in zip(pairs, overlaps, strict=True):
        best[index] = max(best[index], overlap.f1)
    return best


def _likelihoods(replies: Sequence[ScorableReply], models: ScoringModels) -> list[Likelihood]:
    missing = [reply.id for reply in replies if not reply.prompt]
    if missing:
        raise BadInput(f"reply {missing[0]} has no prompt ({len(missing)} have none); perplexity needs one per line")
    return models.backbone.likelihoods([(reply.prompt, reply.golds[0]) for reply in replies])
