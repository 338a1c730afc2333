"""Scoring replies in a file against references, together and one by one.

A line of JSONL is {"prediction": "...", "reference": "..."}, with a list `references` if several are equally right, an
optional `id`, and, for perplexity, the `prompt` as a list of {"role", "content"}. Models load when a metric first needs
them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field

from localmem.errors import BadInput
from localmem.evaluation.datasets import msc_cc
from localmem.evaluation.datasets.readers import Record, read_records
from localmem.evaluation.metrics.likelihood import perplexity
from localmem.evaluation.metrics.model_based import mauve
from localmem.evaluation.metrics.text import KINDS, Order, bleu, distinct, rouge, token_f1
from localmem.types import Message

if TYPE_CHECKING:
    from localmem.config import Settings
    from localmem.evaluation.metrics.likelihood import Scorer
    from localmem.evaluation.metrics.model_based import BertScore

MetricName = Literal["bleu", "rouge", "f1", "distinct", "bertscore", "mauve", "perplexity"]
LEXICAL_METRICS: tuple[MetricName, ...] = ("bleu", "rouge", "f1", "distinct")  # those that need no model
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


@dataclass(frozen=True, slots=True)
class ScoringModels:
    """The models that metrics use; each is loaded when it is first needed."""

    encoder: Callable[[], "BertScore"]
    backbone: Callable[[], "Scorer"]


class LocalModels:
    """The models that settings and recipe name; `names` lists those that were loaded."""

    def __init__(self, settings: "Settings", recipe: TextRecipe) -> None:
        self._settings, self._recipe = settings, recipe
        self._scorer: Scorer | None = None
        self.names: dict[str, str] = {}

    def encoder(self) -> "BertScore":
        """The encoder of BERTScore."""
        from localmem.evaluation.metrics.model_based import BertScore

        name = self._recipe.encoder or self._settings.retrieval.encoder
        score = BertScore(_model_folder(name), layers=self._recipe.layers, device=self._recipe.device)
        self.names["encoder"] = f"{name}, layer {score.layers}"
        return score

    def backbone(self) -> "Scorer":
        """The backbone of the settings, loaded once for all metrics."""
        from localmem.evaluation.metrics.likelihood import Scorer

        if self._scorer is None:
            name, adapter = self._settings.model, self._recipe.adapter
            self._scorer = Scorer(_model_folder(name), adapter=adapter, device=self._recipe.device)
            self.names["model"] = name + (f" with {adapter.name}" if adapter else "")
        return self._scorer


def _model_folder(name: str) -> Path:
    from localmem.weights import model_path

    folder = Path(name).expanduser()
    return folder if folder.is_dir() else model_path(name)


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
    for place, line in read_records(path, _Line):
        golds = tuple(text for text in [line.reference, *line.references] if text and text.strip())
        if not golds:
            raise BadInput(f"{place}: there is no reference; add `reference` or `references`")
        prompt = tuple(Message(message.role, message.content) for message in line.prompt)
        replies.append(ScorableReply(line.id or str(len(replies) + 1), line.prediction, golds, prompt))
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
    for name in names:
        scores = _lexical(replies, name, stem) if name in LEXICAL_METRICS else _model_based(replies, name, models)
        overall |= scores.overall
        each |= scores.each
    return ReplyScores(overall, each)


def _lexical(replies: Sequence[ScorableReply], name: MetricName, stem: bool) -> ReplyScores:
    texts, golds = [reply.text for reply in replies], [reply.golds for reply in replies]
    if name == "bleu":
        scores = {f"BLEU-{order}": bleu(texts, golds, order) for order in ORDERS}
        overall = {key: score.corpus for key, score in scores.items()}
        return ReplyScores(overall, {key: score.each for key, score in scores.items()})
    if name == "rouge":
        kinds = rouge(texts, golds, KINDS, stem=stem)
        return _means({f"ROUGE-{kind.removeprefix('rouge')}": values for kind, values in kinds.items()})
    if name == "f1":
        return _means({"F1": [max(token_f1(reply.text, gold) for gold in reply.golds) for reply in replies]})
    return ReplyScores({f"Distinct-{order}": distinct(texts, order) for order in (1, 2)})


def _model_based(replies: Sequence[ScorableReply], name: MetricName, models: ScoringModels) -> ReplyScores:
    if name == "bertscore":
        return _means({"BERTScore": _best_bert_scores(replies, models.encoder())})
    if name == "mauve":
        return ReplyScores({"MAUVE": _mauve(replies, models.backbone())})
    return _perplexity(replies, models)


def _best_bert_scores(replies: Sequence[ScorableReply], encoder: "BertScore") -> list[float]:
    """BERTScore's F1 against the closest reference."""
    pairs = [(index, reply.text, gold) for index, reply in enumerate(replies) for gold in reply.golds]
    overlaps = encoder.score([text for _, text, _ in pairs], [gold for _, _, gold in pairs])
    best = [0.0] * len(replies)
    for (index, _, _), overlap in zip(pairs, overlaps, strict=True):
        best[index] = max(best[index], overlap.f1)
    return best


def _mauve(replies: Sequence[ScorableReply], backbone: "Scorer") -> float:
    """An empty reply has no vector and is left out."""
    ours = [reply.text for reply in replies if reply.text.strip()]
    return mauve(backbone.features(ours), backbone.features([reply.golds[0] for reply in replies]))


def _perplexity(replies: Sequence[ScorableReply], models: ScoringModels) -> ReplyScores:
    missing = [reply.id for reply in replies if not reply.prompt]
    if missing:
        raise BadInput(f"reply {missing[0]} has no prompt ({len(missing)} have none); perplexity needs one per line")
    likelihoods = models.backbone().likelihoods([(reply.prompt, reply.golds[0]) for reply in replies])
    each = [likelihood.perplexity for likelihood in likelihoods]
    return ReplyScores({"perplexity": perplexity(likelihoods)}, {"perplexity": each})


def _means(each: Mapping[str, Sequence[float]]) -> ReplyScores:
    return ReplyScores({name: fmean(values) for name, values in each.items()}, each)
