"""Fitting what the default memory ranks by: the weights of its order, and those of whether a request needs memory.

The order is fitted as a reranker learns: each right exchange against the wrong ones of its question. A reranker knows
the people that it was trained on, so each author's candidates are scored by one trained without that author. Both
models are also measured on each author, with weights fitted on the others only.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import yaml

from finetune.reranker_lessons import RIGHT
from finetune.trainers.reranker import lesson_loss
from localmem.config import Settings
from localmem.errors import BadInput
from localmem.evaluation.datasets import scenarios
from localmem.evaluation.datasets.scenarios import FORGOTTEN, Person
from localmem.files import writing
from localmem.llm.scripted import ScriptedLLM
from localmem.retrieval.base import Encoder
from localmem.systems.evidence import relevance
from localmem.systems.evidence.evidence_memory import EvidenceMemory
from localmem.systems.evidence.relevance import describe_request

BIAS = "bias"
_HIDDEN = 0.008  # share of the questions with evidence that the floor may hide where it is chosen
_STRENGTH = 0.5  # of the pull of the request's weights to 0, as in scikit-learn with C = 1
_DEPTHS = (5, 10)

Features = Mapping[str, float]
Weights = dict[str, float]
Figures = dict[str, str | float]


class RankedQuestion(NamedTuple):
    """A question with its candidates as found, which of them are right, and how many right ones there are in all."""

    author: str
    candidates: Sequence[Features]
    right: Sequence[bool]
    evidence: int


class Request(NamedTuple):
    """The cues of a request, and whether it needs memory."""

    author: str
    cues: Features
    needs_memory: bool


def fit_ranking(settings: Settings, folders: Iterable[Path], rerankers: Mapping[str, str], out: Path) -> list[Figures]:
    """Fit both models on the people of these folders and write ranking.yaml and relevance.yaml to `out`.

    Each may take the place of the package's own: relevance.yaml keeps the cues. Its `floor` is for the settings.
    `rerankers` are names or folders by author, default: that of the settings. Returns the measures on each author.
    Raises BadInput.
    """
    from localmem.factory import bare_encoder

    people = [person for folder in folders for person in scenarios.read_people(folder) if person.language == "en"]
    authors = sorted({person.author for person in people})
    if len(authors) < 3 or (unknown := sorted(set(rerankers) - set(authors))):
        cure = f"no author {unknown[0]!r}" if len(authors) > 2 else "give conversations of at least three authors"
        raise BadInput(f"the authors are {', '.join(authors)}: {cure}")
    encoder = bare_encoder(settings)
    questions = [
        question
        for person in people
        for question in _read_questions(person, settings, encoder, rerankers.get(person.author))
    ]
    requests = [request for person in people for request in _read_requests(person)]
    with writing(out, "choose another --out"):
        out.mkdir(parents=True, exist_ok=True)
        (out / "ranking.yaml").write_text(_dump(_round_weights(fit_order(questions))), encoding="utf-8")
        need = _round_weights(fit_need(requests))
        model = {BIAS: need.pop(BIAS), "weights": need, "floor": round(_choose_floor(requests), 2)}
        (out / "relevance.yaml").write_text(f"{_cues_text()}{_dump(model)}", encoding="utf-8")
    return [_measure(author, questions, requests) for author in authors]


def _cues_text() -> str:
    """What stands before the model in the package's relevance.yaml: the cues, and what is said of them."""
    return re.split(r"(?m)^bias:", Path(relevance.__file__).with_suffix(".yaml").read_text(encoding="utf-8"))[0]


def _round_weights(weights: Weights) -> Weights:
    return {name: round(value, 2) for name, value in weights.items()}


def _dump(value: object) -> str:
    return str(yaml.safe_dump(value, sort_keys=False))


def _read_questions(
    person: Person, settings: Settings, encoder: Encoder, reranker: str | None
) -> Iterable[RankedQuestion]:
    from localmem import factory

    options = {**settings.options, **({"reranker": reranker} if reranker else {})}
    settings = settings.model_copy(update={"system": EvidenceMemory.name, "options": options})
    parts = factory.Parts(
        ScriptedLLM(lambda _: ""),
        lambda: factory.retriever(settings, lambda: encoder, system=factory.SYSTEMS[settings.system]),
    )
    memory = factory.memory(settings, parts)
    assert isinstance(memory, EvidenceMemory)  # noqa: S101  # for the type checker
    for session in person.sessions:
        memory.apply(memory.end_session(session))
    exchanges = [exchange.turns() for session in person.sessions for exchange in session.exchanges()]
    for probe, turns in zip(person.probes, person.evidence, strict=True):
        evidence = {own[0].id for own in exchanges if any(turn.id in turns for turn in own)}
        if not evidence or probe.type == FORGOTTEN:
            continue
        for text in filter(None, (probe.question, probe.paraphrase)):
            candidates = memory.describe_candidates(text)
            right = [units[0].sources[0] in evidence for units, _ in candidates]
            yield RankedQuestion(person.author, [features for _, features in candidates], right, len(evidence))


def _read_requests(person: Person) -> Iterable[Request]:
    for probe in person.probes:
        if probe.is_answerable and probe.evidence:
            for text in filter(None, (probe.question, probe.paraphrase)):
                yield Request(person.author, describe_request(text), needs_memory=True)
    for text in person.ordinary:
        yield Request(person.author, describe_request(text), needs_memory=False)


# -- fitting -----------------------------------------------------------------------------------------------------------


def fit_order(questions: Sequence[RankedQuestion]) -> Weights:
    """The weights by the listwise loss, then the bias that makes the sum the log-odds of a right exchange."""
    rows = [
        (_table(question.candidates), torch.tensor(question.right)) for question in questions if any(question.right)
    ]
    names = list(questions[0].candidates[0])
    weights = torch.zeros(len(names), requires_grad=True)

    def loss() -> torch.Tensor:
        losses = [lesson_loss((table @ weights)[None], right[None] * RIGHT, 0.0) for table, right in rows]
        return torch.stack(losses).mean()

    _minimise([weights], loss)
    everything, right = torch.cat([table for table, _ in rows]), torch.cat([right for _, right in rows]).float()
    sums, bias = (everything @ weights).detach(), torch.zeros(1, requires_grad=True)
    _minimise([bias], lambda: torch.nn.functional.binary_cross_entropy_with_logits(sums + bias, right))
    return {BIAS: bias.item(), **dict(zip(names, weights.tolist(), strict=True))}


def fit_need(requests: Sequence[Request]) -> Weights:
    """A logistic regression over the cues of the requests."""
    table, labels = _table([request.cues for request in requests]), [request.needs_memory for request in requests]
    weights, bias = (torch.zeros(size, requires_grad=True) for size in (table.shape[1], 1))
    targets = torch.tensor(labels).float()

    def loss() -> torch.Tensor:
        logits = table @ weights + bias
        errors = torch.nn.functional.binary_cross_entropy_with_logits(logits, targets, reduction="sum")
        return errors + _STRENGTH * weights.square().sum()

    _minimise([weights, bias], loss)
    return {BIAS: bias.item(), **dict(zip(requests[0].cues, weights.tolist(), strict=True))}


def _choose_floor(requests: Sequence[Request]) -> float:
    """The probability below which few of the questions are, each judged by weights fitted on the other authors."""
    likely: list[float] = []
    for author in {request.author for request in requests}:
        weights = fit_need([request for request in requests if request.author != author])
        likely += [_likely(weights, own) for own in requests if own.author == author and own.needs_memory]
    return float(np.quantile(likely, _HIDDEN))


def _likely(weights: Weights, request: Request) -> float:
    return float(1 / (1 + np.exp(-weights[BIAS] - sum(weights[name] * value for name, value in request.cues.items()))))


def _table(rows: Sequence[Features]) -> torch.Tensor:
    return torch.tensor([list(row.values()) for row in rows])


def _minimise(parameters: list[torch.Tensor], loss: Callable[[], torch.Tensor]) -> None:
    optimizer = torch.optim.LBFGS(parameters, max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    optimizer.step(closure)


# -- measuring ---------------------------------------------------------------------------------------------------------


def _measure(author: str, questions: Sequence[RankedQuestion], requests: Sequence[Request]) -> Figures:
    """Recall of an author's evidence, and what the floor hides of its requests, by weights fitted on the others."""
    weights = fit_order([question for question in questions if question.author != author])
    others = [request for request in requests if request.author != author]
    need, floor = fit_need(others), _choose_floor(others)
    own = [question for question in questions if question.author == author]
    hidden = {
        kind: float(np.mean([_likely(need, each) < floor for each in requests if each[::2] == (author, kind)]))
        for kind in (True, False)
    }
    return {
        "author": author,
        "questions": len(own),
        **{f"found@{depth}": float(np.mean([_recall(question, None, depth) for question in own])) for depth in _DEPTHS},
        **{f"recall@{depth}": float(np.mean([_recall(each, weights, depth) for each in own])) for depth in _DEPTHS},
        "hidden questions": hidden[True],
        "hidden ordinary": hidden[False],
    }


def _recall(question: RankedQuestion, weights: Weights | None, depth: int) -> float:
    order = list(range(len(question.right)))
    if weights:
        scores = [sum(weights[name] * value for name, value in row.items()) for row in question.candidates]
        order.sort(key=lambda place: -scores[place])
    return sum(question.right[place] for place in order[:depth]) / question.evidence
