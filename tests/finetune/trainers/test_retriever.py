"""A retriever is trained from a small encoder made on the spot, goes on after an interrupt, and is loaded to search."""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import finetune.trainers.retriever as retriever_training
from finetune.trainers.retriever import Job, table, train
from finetune.trainers.training import CHECKPOINTS, Plan
from finetune.triplets import Mining, Triplet, divided, read, triplets
from localmem.errors import BadInput
from localmem.retrieval.encoder import SentenceEncoder
from tests.evaluation.fixtures import LOCOMO, written
from tests.finetune.small import small_encoder

TOPICS = ("cat", "car", "boat", "tea")
ASKED = {"cat": "pet", "car": "drive", "boat": "sail", "tea": "drink"}
GROUPS = ("ana", "ben", "cleo", "dora", "eve", "finn")  # ana and finn fall into the half that is learned from
PLAN = Plan(epochs=12, batch=8, learning_rate=5e-3, patience=12)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = ["what", "of", "the", "here", *TOPICS, *ASKED.values(), *GROUPS]
    return small_encoder(tmp_path_factory.mktemp("base"), words)


def pairs(folder: Path) -> Path:
    """Everyone has the same four things and asks for them by other words: no word but small ones is shared."""
    return written(
        folder,
        [
            {
                "query": f"what of the {ASKED[topic]}",
                "positive": f"the {topic} of {name}",
                "negatives": ["here of the what"],
                "group": name,
            }
            for name in GROUPS
            for topic in TOPICS
        ],
        "pairs.jsonl",
        lines=True,
    )


def job(base: Path, folder: Path, name: str = "run") -> Job:
    path = pairs(folder)
    return Job(base, [read("pairs", path, "turn")], [path], folder / name, PLAN, Mining(hard=1, far=2))


def test_what_was_learned_is_found_in_other_groups(base: Path, tmp_path: Path) -> None:
    asked = job(base, tmp_path)
    trained, (found,) = train(asked, note=lambda _: None)
    assert found.before["recall@1"] < 0.6
    assert found.after["recall@1"] > 0.7
    assert found.gained["recall@1"].low > 0
    assert trained.measures["mrr"] > 0.9
    assert found.gained["recall@1"].mean == pytest.approx(found.after["recall@1"] - found.before["recall@1"])
    assert found.questions + 4 * 2 == 4 * len(GROUPS)  # nobody is in both halves
    encoder = SentenceEncoder(asked.out, name="trained", device="cpu")
    asking = encoder.encode(["what of the pet"], "query")
    near = encoder.encode([f"the {topic} of cleo" for topic in TOPICS], "passage") @ asking[0]
    assert int(np.argmax(near)) == TOPICS.index("cat")
    report = json.loads((asked.out / "run.json").read_text(encoding="utf-8"))
    assert report["report"][0]["after"]["recall@1"] == found.after["recall@1"]
    assert report["settings"]["margin"] == 0.2
    assert len(report["data"]["pairs.jsonl"]) == 64
    assert (asked.out / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert (asked.out / "README.md").read_text(encoding="utf-8").startswith("# Retriever\n")
    assert not (asked.out / CHECKPOINTS).exists()
    assert "gained" in table([found])


def test_an_interrupted_run_goes_on_to_the_same_weights(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = replace(PLAN, epochs=4, accumulate=2)
    whole, broken = (replace(job(base, tmp_path, name), plan=plan) for name in ("whole", "broken"))
    train(whole, note=lambda _: None)
    calls, measured = count(), retriever_training._measures

    def interrupted(*given: object) -> dict[str, float]:
        if next(calls) == 2:  # two epochs are saved, the third is lost
            raise KeyboardInterrupt
        return measured(*given)  # type: ignore[arg-type]  # passed on as it came

    with monkeypatch.context() as patch:
        patch.setattr(retriever_training, "_measures", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(broken, note=lambda _: None)
    with pytest.raises(BadInput, match="--resume"):
        train(broken, note=lambda _: None)
    train(broken, resume=True, note=lambda _: None)
    ours, theirs = (load_file(str(one.out / "model.safetensors")) for one in (whole, broken))
    start = load_file(str(base / "model.safetensors"))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert any(not torch.equal(ours[name], start[name]) for name in ours)


def test_wrong_texts_come_from_bm25_from_other_sessions_and_from_the_file(tmp_path: Path) -> None:
    near, far = Mining(hard=1, far=0), Mining(hard=0, far=1)
    said = read("locomo", written(tmp_path, LOCOMO), "turn")
    first = "Ana: I adopted a grey parrot called Kiko."
    questions = {one.query: one for one in triplets(said, far, 0)}
    bird = questions["What bird does Ana have?"]
    assert bird.positive == first
    assert bird.negative in ("Ben: I moved to Lisbon for a job in a bakery.", "Ana: Lovely, send me some bread.")
    (moved,) = (one for one in triplets(said, near, 0) if one.query == "Did Ana move?")
    assert moved.positive == "Ben: I moved to Lisbon for a job in a bakery."
    assert moved.negative.startswith("Ana: ")  # the name is the word that they share
    given = read("pairs", pairs(tmp_path), "turn")
    named = triplets(given, Mining(hard=0, far=0), 0)
    assert named[0] == Triplet("what of the pet", "the cat of ana", "here of the what")
    assert len(named) == len(GROUPS) * len(TOPICS)
    assert triplets(given, Mining(), 1) == triplets(given, Mining(), 1)


def test_what_stops_the_training_early_is_not_learned_from(tmp_path: Path) -> None:
    learned, held = (list(questions) for questions in map(_questions, divided(read("pairs", pairs(tmp_path), "turn"))))
    assert len(held) == 2  # one of ten
    assert not set(learned) & set(held)
    assert len(learned) + len(held) == len(GROUPS) * len(TOPICS)


def _questions(material: object) -> Iterator[str]:
    yield from (probe.id for episode in material.data.episodes for probe in episode.probes)  # type: ignore[attr-defined]  # a Material


def test_mistakes_are_told_before_the_first_step(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = job(base, tmp_path)
    with pytest.raises(BadInput, match="no encoder to start from"):
        train(replace(asked, base=tmp_path), note=lambda _: None)
    single = written(tmp_path, [{"query": "a", "positive": "b", "group": "ana"}] * 2, "one.jsonl", lines=True)
    with pytest.raises(BadInput, match="falls into the half"):
        train(replace(asked, materials=[read("pairs", single, "turn")]), note=lambda _: None)
    bare = [{"query": f"a {name}", "positive": "b", "group": name} for name in GROUPS]
    path = written(tmp_path, bare, "bare.jsonl", lines=True)
    with pytest.raises(BadInput, match="one that does not"):
        train(replace(asked, materials=[read("pairs", path, "turn")]), note=lambda _: None)
    with pytest.raises(BadInput, match="line 1: positive"):
        read("pairs", written(tmp_path, [{"query": "a", "group": "b"}], "bad.jsonl", lines=True), "turn")
    with monkeypatch.context() as patch:
        patch.setattr("psutil.virtual_memory", type("Memory", (), {"available": 1000}))
        with pytest.raises(BadInput, match="training needs"):
            train(replace(asked, out=tmp_path / "large"), note=lambda _: None)
    assert not asked.out.exists()


def test_the_licence_says_what_the_data_allow(base: Path, tmp_path: Path) -> None:
    said = read("locomo", written(tmp_path, LOCOMO), "turn")
    assert "not for commercial use" in replace(job(base, tmp_path), materials=[said]).licence
