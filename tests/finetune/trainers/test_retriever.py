"""A retriever trained from a small encoder searches better, and an interrupted training resumes."""

import json
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

import finetune.trainers.retriever as retriever_training
from finetune.trainers.retriever import RetrieverRecipe, comparison_table, describe_licence, train
from finetune.trainers.retriever_corpora import Corpus, Triplet, hold_out_questions, mine_triplets, read_corpus
from finetune.trainers.training import CHECKPOINTS, TrainingJob
from localmem import factory
from localmem.config import load_settings
from localmem.errors import BadInput
from localmem.retrieval.encoder import QUERY_FOLDER, SentenceEncoder
from tests.evaluation.fixtures import LOCOMO, write_records
from tests.finetune.small import small_encoder

TOPICS = ("cat", "car", "boat", "tea")
VERBS = {"cat": "pet", "car": "drive", "boat": "sail", "tea": "drink"}
GROUPS = ("ana", "ben", "cleo", "dora", "eve", "finn")  # ana and finn fall into the half that is learned from


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = ["what", "of", "the", "here", *TOPICS, *VERBS.values(), *GROUPS]
    return small_encoder(tmp_path_factory.mktemp("base"), words)


def pairs(folder: Path) -> Path:
    """Everyone has the same four things and asks for them in other words: only function words are shared."""
    return write_records(
        folder,
        [
            {
                "query": f"what of the {VERBS[topic]}",
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


def job(
    base: Path, folder: Path, name: str = "run", *, resume: bool = False, **fields: object
) -> TrainingJob[RetrieverRecipe]:
    settings: dict[str, object] = {
        "base": str(base),
        "hard": 1,
        "far": 2,
        "epochs": 12,
        "batch_size": 8,
        "learning_rate": 5e-3,
        "patience": 12,
    }
    recipe = RetrieverRecipe.model_validate(settings | fields)
    return TrainingJob(recipe, folder / name, resume=resume, notify=lambda _: None)


def sources(folder: Path) -> list[tuple[str, Path]]:
    return [("pairs", pairs(folder))]


def test_the_trained_encoder_finds_answers_in_other_groups(base: Path, tmp_path: Path) -> None:
    training = job(base, tmp_path)
    result, (comparison,) = train(training, sources(tmp_path))
    assert comparison.before["recall@1"] < 0.6
    assert comparison.after["recall@1"] > 0.7
    assert (comparison.gain["recall@1"].low or 0) > 0
    assert result.measures["mrr"] > 0.9
    gain = comparison.after["recall@1"] - comparison.before["recall@1"]
    assert comparison.gain["recall@1"].mean == pytest.approx(gain)
    assert comparison.questions + 4 * 2 == 4 * len(GROUPS)  # nobody is in both halves
    encoder = SentenceEncoder(training.out, name="trained", device="cpu")
    question = encoder.encode(["what of the pet"], "query")
    scores = encoder.encode([f"the {topic} of cleo" for topic in TOPICS], "passage") @ question[0]
    assert int(np.argmax(scores)) == TOPICS.index("cat")
    report = json.loads((training.out / "run.json").read_text(encoding="utf-8"))
    assert report["report"][0]["after"]["recall@1"] == comparison.after["recall@1"]
    assert report["settings"]["margin"] == 0.2
    assert len(report["data"]["pairs.jsonl"]) == 64
    assert (training.out / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert (training.out / "README.md").read_text(encoding="utf-8").startswith("# Retriever\n")
    assert not (training.out / CHECKPOINTS).exists()
    assert "gain" in comparison_table([comparison])


def test_two_encoders_learn_and_are_pooled_at_the_first_token(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = job(base, tmp_path, encoders="two", pooling="cls", epochs=30, patience=30)
    result, _ = train(training, sources(tmp_path))
    losses = [entry["loss"] for entry in result.log if "loss" in entry]
    assert losses[-1] < 0.8 * losses[0]
    folders = {"query": training.out / QUERY_FOLDER, "passage": training.out}
    weights = [load_file(str(folder / "model.safetensors")) for folder in folders.values()]
    start = load_file(str(base / "model.safetensors"))
    for name in ("embeddings.word_embeddings.weight", "encoder.layer.0.output.dense.weight"):
        assert not torch.equal(weights[0][name], weights[1][name])
        assert not any(torch.equal(own[name], start[name]) for own in weights)

    monkeypatch.setattr(factory, "model_path", lambda _: training.out)
    both = factory.bare_encoder(load_settings(None, {"retrieval": {"device": "cpu"}}))
    for side, text in (("query", "what of the pet"), ("passage", "the cat of cleo")):
        tokenizer = AutoTokenizer.from_pretrained(str(folders[side]), local_files_only=True)
        model = AutoModel.from_pretrained(str(folders[side]), local_files_only=True).eval()
        first = model(**tokenizer([text], return_tensors="pt")).last_hidden_state[0, 0].detach().numpy()
        (row,) = both.encode([text], side)  # type: ignore[arg-type]  # one of the two sides
        assert row == pytest.approx(first / np.linalg.norm(first), abs=0.02)


MEMORY = ["이가 아픔", "배가 고픔"]
CARECALL: list[dict[str, Any]] = [
    {"guid": f"care-{name}-S{number}", "dialogue": dialogue, "memory": memory}
    for name in ("35", "36")
    for number, memory, dialogue in (
        (1, [], [{"role": "system", "text": "요즘 어떠세요?"}, {"role": "user", "text": "이가 아파요."}]),
        (2, MEMORY, [{"role": "user", "text": "안녕하세요."}, {"role": "system", "text": "아직 아프세요?"}]),
    )
]


def test_a_dialogue_learns_the_memory_sentences_that_its_reply_uses(tmp_path: Path) -> None:
    path = tmp_path / "carecall.json"
    path.write_text(json.dumps([CARECALL[:2], CARECALL[2:]]), encoding="utf-8")
    corpus = read_corpus("carecall", path, "turn")
    assert [(probe.question, probe.evidence) for episode in corpus.dataset.episodes for probe in episode.probes] == [
        ("안녕하세요.", (f"care-{name}/0.0",)) for name in ("35", "36")
    ]
    (session,) = corpus.dataset.episodes[0].sessions
    assert [turn.text for turn in session.turns] == [MEMORY[0]], "the other sentence is not used"


def test_a_resumed_run_ends_with_the_same_weights(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(job(base, tmp_path, "complete", epochs=4, accumulate=2), sources(tmp_path))
    calls, measure = count(), retriever_training._mean_measures

    def interrupt(*arguments: object) -> dict[str, float]:
        if next(calls) == 2:  # two epochs are saved, the third is lost
            raise KeyboardInterrupt
        return measure(*arguments)  # type: ignore[arg-type]  # passed on unchanged

    with monkeypatch.context() as patch:
        patch.setattr(retriever_training, "_mean_measures", interrupt)
        with pytest.raises(KeyboardInterrupt):
            train(job(base, tmp_path, "resumed", epochs=4, accumulate=2), sources(tmp_path))
    with pytest.raises(BadInput, match="--resume"):
        train(job(base, tmp_path, "resumed", epochs=4, accumulate=2), sources(tmp_path))
    (tmp_path / "more").mkdir()
    other = [*sources(tmp_path), *sources(tmp_path / "more")]
    with pytest.raises(BadInput, match=r"began with other settings: data was \w{12}, now \w{12};"):
        train(job(base, tmp_path, "resumed", epochs=4, accumulate=2, resume=True), other)
    train(job(base, tmp_path, "resumed", epochs=4, accumulate=2, resume=True), sources(tmp_path))
    complete, resumed = (load_file(str(tmp_path / name / "model.safetensors")) for name in ("complete", "resumed"))
    start = load_file(str(base / "model.safetensors"))
    assert complete.keys() == resumed.keys()
    assert all(torch.equal(complete[name], resumed[name]) for name in complete)
    assert any(not torch.equal(complete[name], start[name]) for name in complete)


def mine(corpus: Corpus, *, hard: int, far: int, seed: int = 0) -> list[Triplet]:
    return mine_triplets(corpus, positives=4, hard=hard, far=far, language="english", seed=seed)


def test_wrong_texts_come_from_bm25_from_other_sessions_and_from_the_file(tmp_path: Path) -> None:
    locomo = read_corpus("locomo", write_records(tmp_path, LOCOMO), "turn")
    by_query = {triplet.query: triplet for triplet in mine(locomo, hard=0, far=1)}
    bird = by_query["What bird does Ana have?"]
    assert bird.positive == "Ana: I adopted a grey parrot called Kiko."
    assert bird.negative in ("Ben: I moved to Lisbon for a job in a bakery.", "Ana: Lovely, send me some bread.")
    (moved,) = (triplet for triplet in mine(locomo, hard=1, far=0) if triplet.query == "Did Ana move?")
    assert moved.positive == "Ben: I moved to Lisbon for a job in a bakery."
    assert moved.negative.startswith("Ana: ")  # the name is the word that they share
    own = read_corpus("pairs", pairs(tmp_path), "turn")
    listed = mine(own, hard=0, far=0)
    assert listed[0] == Triplet("what of the pet", "the cat of ana", "here of the what")
    assert len(listed) == len(GROUPS) * len(TOPICS)
    assert mine(own, hard=2, far=1, seed=1) == mine(own, hard=2, far=1, seed=1)


def test_validation_questions_are_not_trained_on(tmp_path: Path) -> None:
    learned, held_out = map(_questions, hold_out_questions(read_corpus("pairs", pairs(tmp_path), "turn")))
    assert len(held_out) == 2  # one of ten
    assert not set(learned) & set(held_out)
    assert len(learned) + len(held_out) == len(GROUPS) * len(TOPICS)


def _questions(corpus: Corpus) -> list[str]:
    return [probe.id for episode in corpus.dataset.episodes for probe in episode.probes]


def test_mistakes_are_reported_before_the_first_step(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadInput, match="cannot be loaded as an encoder"):
        train(job(tmp_path, tmp_path), sources(tmp_path))
    single = write_records(tmp_path, [{"query": "a", "positive": "b", "group": "ana"}] * 2, "single.jsonl", lines=True)
    with pytest.raises(BadInput, match="falls into the half"):
        train(job(base, tmp_path), [("pairs", single)])
    bare = [{"query": f"a {name}", "positive": "b", "group": name} for name in GROUPS]
    path = write_records(tmp_path, bare, "bare.jsonl", lines=True)
    with pytest.raises(BadInput, match="both a right and a wrong text"):
        train(job(base, tmp_path), [("pairs", path)])
    with pytest.raises(BadInput, match="line 1: positive"):
        read_corpus("pairs", write_records(tmp_path, [{"query": "a", "group": "b"}], "bad.jsonl", lines=True), "turn")
    with pytest.raises(BadInput, match="cannot learn from the data set 'coqa'"):
        read_corpus("coqa", path, "turn")
    with monkeypatch.context() as patch:
        patch.setattr("psutil.virtual_memory", type("Memory", (), {"available": 1000}))
        with pytest.raises(BadInput, match="training needs"):
            train(job(base, tmp_path, "large"), sources(tmp_path))
    assert not (tmp_path / "run").exists()


def test_the_licence_follows_from_the_data(tmp_path: Path) -> None:
    locomo = read_corpus("locomo", write_records(tmp_path, LOCOMO), "turn")
    assert "not for commercial use" in describe_licence(RetrieverRecipe(), [locomo])
