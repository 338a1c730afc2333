"""Replies that lie in a file beside what should have been said: read, and measured together and one by one.

A line of JSONL is {"prediction": "...", "reference": "..."}, with `references`, a list, where several are as right,
with an `id` if it has one, and, for perplexity, with the `prompt` as a list of {"role", "content"}. What needs a model
gets it ready; knows none.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from localmem.errors import BadInput
from localmem.evaluation.datasets import msc_cc
from localmem.evaluation.datasets.files import Record, read_records
from localmem.evaluation.metrics.likelihood import perplexity
from localmem.evaluation.metrics.model_based import mauve
from localmem.evaluation.metrics.text import KINDS, Order, bleu, distinct, rouge, token_f1
from localmem.types import Message

if TYPE_CHECKING:
    from localmem.evaluation.metrics.likelihood import Scorer
    from localmem.evaluation.metrics.model_based import BertScore

MetricName = Literal["bleu", "rouge", "f1", "distinct", "bertscore", "mauve", "perplexity"]
LEXICAL_METRICS: tuple[MetricName, ...] = ("bleu", "rouge", "f1", "distinct")  # measures that need no model
ORDERS: tuple[Order, ...] = (1, 2, 4)  # of BLEU


@dataclass(frozen=True, slots=True)
class ScorableReply:
    """What was replied, what may be said instead, and what was shown to the model before."""

    id: str
    text: str
    golds: tuple[str, ...]
    prompt: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class Measured:
    """Of each measure its value over all replies, and its values by reply where it has any."""

    overall: Mapping[str, float] = field(default_factory=dict)
    each: Mapping[str, Sequence[float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ScoringModels:
    """What measures ask; each is made when it is first needed."""

    encoder: Callable[[], "BertScore"]
    backbone: Callable[[], "Scorer"]


class _Said(Record):
    role: Literal["system", "user", "assistant"]
    content: str


class _Line(Record):
    prediction: str
    reference: str | None = None
    references: list[str] = Field(default_factory=list)
    id: str | None = None
    prompt: list[_Said] = Field(default_factory=list)


def read_replies(path: Path) -> list[ScorableReply]:
    """The replies in a file. Raises BadInput with file and line."""
    found: list[ScorableReply] = []
    for place, line in read_records(path, _Line):
        golds = tuple(one for one in [line.reference, *line.references] if one and one.strip())
        if not golds:
            raise BadInput(f"{place}: it has no reference; add `reference` or `references`, what should have been said")
        prompt = tuple(Message(one.role, one.content) for one in line.prompt)
        found.append(ScorableReply(line.id or str(len(found) + 1), line.prediction, golds, prompt))
    return found


def shipped(path: Path) -> list[ScorableReply]:
    """The baseline's replies in a file of msc_cc, beside what was really said."""
    found = [ScorableReply(one.id, one.reply, (one.reference,)) for one in msc_cc.baseline(path)]
    if not found:
        raise BadInput(f"{path} holds no reply that something follows; give a file of msc_cc")
    return found


def score_replies(
    replies: Sequence[ScorableReply], names: Sequence[MetricName], *, models: ScoringModels, stem: bool = False
) -> Measured:
    """These measures of all replies. BLEU is of 0 to 100 and, over all, no mean; perplexity is that of the golds."""
    overall: dict[str, float] = {}
    each: dict[str, Sequence[float]] = {}
    for name in names:
        found = _counted(replies, name, stem) if name in LEXICAL_METRICS else _asked(replies, name, models)
        overall |= found.overall
        each |= found.each
    return Measured(overall, each)


def _counted(replies: Sequence[ScorableReply], name: MetricName, stem: bool) -> Measured:
    texts, golds = [one.text for one in replies], [one.golds for one in replies]
    if name == "bleu":
        found = {f"BLEU-{order}": bleu(texts, golds, order) for order in ORDERS}
        return Measured({key: one.corpus for key, one in found.items()}, {key: one.each for key, one in found.items()})
    if name == "rouge":
        kinds = rouge(texts, golds, KINDS, stem=stem)
        return _means({f"ROUGE-{kind.removeprefix('rouge')}": values for kind, values in kinds.items()})
    if name == "f1":
        return _means({"F1": [max(token_f1(one.text, gold) for gold in one.golds) for one in replies]})
    return Measured({f"Distinct-{order}": distinct(texts, order) for order in (1, 2)})


def _asked(replies: Sequence[ScorableReply], name: MetricName, models: ScoringModels) -> Measured:
    if name == "bertscore":
        return _means({"BERTScore": _nearest(replies, models.encoder())})
    if name == "mauve":
        return Measured({"MAUVE": _mauve(replies, models.backbone())})
    return _perplexity(replies, models)


def _nearest(replies: Sequence[ScorableReply], encoder: "BertScore") -> list[float]:
    """BERTScore's F1 by the gold that is nearest."""
    pairs = [(place, one.text, gold) for place, one in enumerate(replies) for gold in one.golds]
    found = encoder.score([text for _, text, _ in pairs], [gold for _, _, gold in pairs])
    best = [0.0] * len(replies)
    for (place, _, _), one in zip(pairs, found, strict=True):
        best[place] = max(best[place], one.f1)
    return best


def _mauve(replies: Sequence[ScorableReply], backbone: "Scorer") -> float:
    """An empty reply has no vector, so it is left out."""
    ours = [one.text for one in replies if one.text.strip()]
    return mauve(backbone.features(ours), backbone.features([one.golds[0] for one in replies]))


def _perplexity(replies: Sequence[ScorableReply], models: ScoringModels) -> Measured:
    bare = [one.id for one in replies if not one.prompt]
    if bare:
        raise BadInput(f"reply {bare[0]} has no prompt, and {len(bare)} have none; perplexity needs one in each line")
    found = models.backbone().likelihoods([(one.prompt, one.golds[0]) for one in replies])
    return Measured({"perplexity": perplexity(found)}, {"perplexity": [one.perplexity for one in found]})


def _means(each: Mapping[str, Sequence[float]]) -> Measured:
    return Measured({name: fmean(values) for name, values in each.items()}, each)
