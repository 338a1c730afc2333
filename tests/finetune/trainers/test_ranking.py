"""Fitting what the default memory ranks by: both models on made-up features, and a run over three small authors."""

import json
from pathlib import Path

import pytest
import yaml

from finetune.trainers.ranking import BIAS, RankedQuestion, Request, fit_need, fit_order, fit_ranking
from localmem.config import load_settings
from localmem.errors import BadInput
from localmem.systems.evidence import relevance
from localmem.systems.evidence.ranking import PLACE, RERANKER, SHARED

FACTS = ("My boat lies in Oban.", "My dentist is called Mairi.", "My loft key hangs behind the clock.")
QUESTIONS = ("Where does my boat lie?", "Who is my dentist?", "Where is my loft key?")


def write_person(folder: Path, name: str) -> None:
    turns = [
        {"role": role, "content": text} for fact in FACTS for role, text in (("user", fact), ("assistant", "I see."))
    ]
    probes = [
        {"type": "single-fact", "question": question, "evidence": [[0, 2 * number]]}
        for number, question in enumerate(QUESTIONS)
    ]
    ordinary = ["Write a haiku.", "How do I boil an egg?"]
    person = {"sessions": [{"started_at": "2025-01-02T10:00", "turns": turns}], "probes": probes, "ordinary": ordinary}
    (folder / f"{name}.json").write_text(json.dumps(person))


def test_the_order_learns_what_tells_the_right_exchange() -> None:
    rows = [{"useful": 1.0, "noise": float(number % 2)} for number in range(3)]
    rows += [{"useful": 0.0, "noise": float(number % 2)} for number in range(3)]
    questions = [RankedQuestion("a", [rows[number], *rows[3:]], [True, False, False, False], 1) for number in range(3)]
    weights = fit_order(questions)
    assert weights["useful"] > 3 * abs(weights["noise"])
    assert weights[BIAS] < 0  # most candidates are wrong


def test_the_need_learns_which_cues_speak_against_memory() -> None:
    requests = [Request("a", {"self": 1.0, "task": 0.0}, needs_memory=True)] * 9
    requests += [Request("a", {"self": 0.0, "task": 1.0}, needs_memory=False)] * 3
    weights = fit_need(requests).weights
    assert weights["self"] > 0 > weights["task"]


def test_the_need_learns_from_vectors_too() -> None:
    requests = [Request("a", {"self": 0.0}, needs_memory=needs, vector=(float(needs), 0.5)) for needs in [True, False]]
    model = fit_need(requests * 9)
    assert model.probability({"self": 0.0}, (1.0, 0.5)) > 0.7 > 0.3 > model.probability({"self": 0.0}, (0.0, 0.5))


def test_two_authors_are_too_few(tmp_path: Path) -> None:
    for name in ("a-1", "b-1"):
        write_person(tmp_path, name)
    with pytest.raises(BadInput, match="the authors are a, b: give conversations of at least three authors"):
        fit_ranking(load_settings(), [tmp_path], {}, tmp_path / "out")


@pytest.mark.slow
def test_a_run_measures_each_author_and_writes_both_files(tmp_path: Path, starter_encoder_dir: Path) -> None:
    for name in ("a-1", "b-1", "c-1", "z-1"):
        write_person(tmp_path, name)
    settings = load_settings().model_copy(update={"options": {"reranker": None}})  # a flag of None is no flag
    rows = fit_ranking(settings, [tmp_path], {}, tmp_path / "out", hold_out=["z"])
    assert [row["author"] for row in rows] == ["a", "b", "c"]
    assert [row["recall@5"] for row in rows] == [1, 1, 1]
    order, need = (yaml.safe_load((tmp_path / "out" / f"{name}.yaml").read_text()) for name in ("ranking", "relevance"))
    assert list(order) == [BIAS, RERANKER, PLACE, SHARED]
    table = relevance.Table.model_validate(need)
    assert table.words.weights.keys() == table.cues.keys()
    assert table.words.probability({**dict.fromkeys(table.cues, 0.0), "self": 1.0, "before": 1.0}) > 0.5
    assert table.vectors == relevance.Model(bias=0.0)  # nothing read the requests
    with pytest.raises(BadInput, match="the authors are a, b, c, z: no author 'x'"):
        fit_ranking(settings, [tmp_path], {"x": "folder"}, tmp_path / "out")
