"""Fitting what the default memory ranks by: the weights of its order, and those of whether a request needs memory.

The order is fitted as a reranker learns: each right exchange against the wrong ones of its question. A reranker knows
the people that it was trained on, so each author's candidates are scored by one trained without that author. Whether
memory is needed is also learned from finetune/lessons/requests.txt. Both are measured on each author, with weights
fitted on the others only.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
from localmem.files import read_text, writing
from localmem.llm.scripted import ScriptedLLM
from localmem.retrieval.base import Encoder, QueryReader
from localmem.systems.evidence import relevance
from localmem.systems.evidence.evidence_memory import EvidenceMemory
from localmem.systems.evidence.ranking import log_odds
from localmem.systems.evidence.relevance import Model, describe_request

BIAS = "bias"
_HIDDEN = 0.008  # share of the questions with evidence that the floor may hide where it is chosen
_FLOOR = 0.26  # in configs/systems/evidence.yaml: the models' biases are set so that it hides that share
_STRENGTH = 0.5  # of the pull of the weights of words to 0, as in scikit-learn with C = 1
_VECTOR_STRENGTH = 5.0  # the same where there is a vector
_DEPTHS = (5, 10)
_REQUESTS = Path(__file__).parents[1] / "lessons" / "requests.txt"

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
    """The cues of a request, whether it needs memory, and its vector, if a reranker reads it."""

    author: str
    cues: Features
    needs_memory: bool
    vector: Sequence[float] = ()


def fit_ranking(
    settings: Settings,
    folders: Iterable[Path],
    rerankers: Mapping[str, str],
    out: Path,
    hold_out: Collection[str] = (),
) -> list[Figures]:
    """Fit the order and the need on the people of these folders and write ranking.yaml and relevance.yaml to `out`.

    Each may take the place of the package's own: relevance.yaml keeps the cues. `rerankers` are names or folders by
    author, default: that of the settings. Authors who are held out are not looked at. Returns the measures on each of
    the others. Raises BadInput.
    """
    from localmem.factory import bare_encoder

    people = [
        person
        for folder in folders
        for person in scenarios.read_people(folder)
        if person.language == "en" and person.author not in hold_out
    ]
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
    reranker: object = _new_memory(settings, encoder, None).reranker
    reader = reranker if isinstance(reranker, QueryReader) else None
    requests = read_requests(people, reader)
    with writing(out, "choose another --out"):
        out.mkdir(parents=True, exist_ok=True)
        (out / "ranking.yaml").write_text(_dump(_round_weights(fit_order(questions))), encoding="utf-8")
        (out / "relevance.yaml").write_text(relevance_text(requests, reader), encoding="utf-8")
    return [_measure(author, questions, requests) for author in authors]


def relevance_text(requests: Sequence[Request], reader: QueryReader | None) -> str:
    """The content of relevance.yaml: the package's cues, and models fitted on these requests."""
    cues = re.split(r"(?m)^words:", Path(relevance.__file__).with_suffix(".yaml").read_text(encoding="utf-8"))[0]
    by_words = [request._replace(vector=()) for request in requests]
    models = {"words": _need_model(by_words), "vectors": _need_model(requests, reader) if reader else Model(bias=0.0)}
    dumps = {name: model.model_dump(mode="json", exclude_defaults=True) for name, model in models.items()}
    return cues + str(yaml.safe_dump(dumps, sort_keys=False, default_flow_style=None, width=120))


def _need_model(requests: Sequence[Request], reader: QueryReader | None = None) -> Model:
    """The model of all requests, whose bias makes the default floor hide few of those that need memory."""
    model = fit_need(requests)
    bias = model.bias + log_odds(_FLOOR, 0) - log_odds(_choose_floor(requests), 0)
    weights = _round_weights(model.weights)
    reader_name = reader.query_identity if reader else ""
    return model.model_copy(update={"bias": round(bias, 2), "weights": weights, "reader": reader_name})


def _round_weights(weights: Weights) -> Weights:
    return {name: round(value, 2) for name, value in weights.items()}


def _dump(value: object) -> str:
    return str(yaml.safe_dump(value, sort_keys=False))


def _read_questions(
    person: Person, settings: Settings, encoder: Encoder, reranker: str | None
) -> Iterable[RankedQuestion]:
    memory = _new_memory(settings, encoder, reranker)
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


def _new_memory(settings: Settings, encoder: Encoder, reranker: str | None) -> EvidenceMemory:
    from localmem import factory

    options = {**settings.options, **({"reranker": reranker} if reranker else {})}
    settings = settings.model_copy(update={"system": EvidenceMemory.name, "options": options})
    parts = factory.Parts(
        ScriptedLLM(lambda _: ""),
        lambda: factory.retriever(settings, lambda: encoder, system=factory.SYSTEMS[settings.system]),
    )
    memory = factory.memory(settings, parts)
    assert isinstance(memory, EvidenceMemory)  # noqa: S101  # for the type checker
    return memory


def read_requests(people: Sequence[Person], reader: QueryReader | None) -> list[Request]:
    """The questions that people's memories answer, their ordinary requests, and the lessons that are nobody's."""
    rows = [
        (person.author, text, True)
        for person in people
        for probe in person.probes
        if probe.is_answerable and probe.evidence
        for text in filter(None, (probe.question, probe.paraphrase))
    ]
    rows += [(person.author, text, False) for person in people for text in person.ordinary]
    lines = read_text(_REQUESTS, "restore it").splitlines()
    rows += [("", line[2:], line[0] == "+") for line in lines if line[:2] in ("+ ", "- ")]
    vectors = [reader.read_query(text) if reader else None for _, text, _ in rows]
    return [
        Request(author, describe_request(text), needs_memory, () if vector is None else vector.tolist())
        for (author, text, needs_memory), vector in zip(rows, vectors, strict=True)
        if reader is None or vector is not None
    ]


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


def fit_need(requests: Sequence[Request]) -> Model:
    """A logistic regression over the cues of the requests, and over their vectors if they have some."""
    labels = torch.tensor([request.needs_memory for request in requests]).float()
    vectors = torch.tensor([request.vector for request in requests]) * relevance.SCALE
    table = torch.cat([_table([request.cues for request in requests]), vectors], dim=1)
    strength = _VECTOR_STRENGTH if vectors.shape[1] else _STRENGTH
    weights, bias = (torch.zeros(size, requires_grad=True) for size in (table.shape[1], 1))

    def loss() -> torch.Tensor:
        logits = table @ weights + bias
        errors = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction="sum")
        return errors + strength * weights.square().sum()

    _minimise([weights, bias], loss)
    names = list(requests[0].cues)
    numbers = (weights[len(names) :] * relevance.PRECISION).round().int().tolist()
    return Model(bias=bias.item(), weights=dict(zip(names, weights.tolist(), strict=False)), vector=numbers)


def _choose_floor(requests: Sequence[Request]) -> float:
    """The probability below which few of the questions are, each judged by weights fitted on the other authors."""
    likely: list[float] = []
    for author in {request.author for request in requests} - {""}:
        model = fit_need([request for request in requests if request.author != author])
        likely += [_likely(model, own) for own in requests if own.author == author and own.needs_memory]
    return float(np.quantile(likely, _HIDDEN))


def _likely(model: Model, request: Request) -> float:
    return model.probability(request.cues, request.vector)


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
        kind: float(np.mean([_likely(need, each) < floor for each in requests if each[:3:2] == (author, kind)]))
        for kind in (True, False)
    }
    return {
        "author": author,
        "questions": len(own),
        **{
            f"recall@{depth} of the search": float(np.mean([_recall(question, None, depth) for question in own]))
            for depth in _DEPTHS
        },
        **{f"recall@{depth}": float(np.mean([_recall(each, weights, depth) for each in own])) for depth in _DEPTHS},
        "questions without memory": hidden[True],
        "ordinary requests without memory": hidden[False],
    }


def _recall(question: RankedQuestion, weights: Weights | None, depth: int) -> float:
    order = list(range(len(question.right)))
    if weights:
        scores = [sum(weights[name] * value for name, value in row.items()) for row in question.candidates]
        order.sort(key=lambda place: -scores[place])
    return sum(question.right[place] for place in order[:depth]) / question.evidence
