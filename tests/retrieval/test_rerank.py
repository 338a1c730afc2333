"""RerankingRetriever: the order that a budget of time leaves; and a real cross-encoder, its head fresh."""

import logging
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from localmem.errors import BadSettings, BadVectors, ModelMissing
from localmem.retrieval.base import Match, Scope
from localmem.retrieval.rerank import CrossEncoderReranker, RerankingRetriever
from localmem.types import Unit
from tests.fakes import unit


class Ordered:
    """Finds everything in the order of addition, with scores 1, 0.9, 0.8, ..."""

    memory = 1

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.calls: list[tuple[int, Scope | None]] = []

    def add(self, units: Sequence[Unit]) -> None:
        if any(item.id == "bad" for item in units):
            raise BadVectors("no")
        self.ids += [item.id for item in units if item.id not in self.ids]

    def remove(self, ids: Sequence[str]) -> None:
        self.ids = [name for name in self.ids if name not in ids]

    def search(self, queries: Sequence[str], k: int, scope: Scope | None = None) -> list[list[Match]]:
        self.calls.append((k, scope))
        return [[Match(name, 1 - 0.1 * at) for at, name in enumerate(self.ids[:k])] for _ in queries]


class Numbers:
    """Scores a text by the number that it is; each batch takes a second of a clock that nothing else moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.batches: list[list[str]] = []

    def clock(self) -> float:
        return self.now

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        self.now += 1
        self.batches.append(list(texts))
        return [float(text) for text in texts]


def build_retriever(
    *keys: str, depth: int = 50, budget: float | None = None
) -> tuple[RerankingRetriever, Ordered, Numbers]:
    inner, reranker = Ordered(), Numbers()
    retriever = RerankingRetriever(inner, reranker, depth=depth, budget_seconds=budget, batch=2, clock=reranker.clock)
    retriever.add([unit(f"u{n}", "text", key=key) for n, key in enumerate(keys)])
    return retriever, inner, reranker


def names(matches: Sequence[Match]) -> str:
    return " ".join(match.id for match in matches)


def test_the_first_matches_are_ordered_by_the_rerankers_score() -> None:
    retriever, inner, reranker = build_retriever("3", "9", "5", "9", "99", depth=4)
    scope = Scope(speaker="User")
    (matches,) = retriever.search(["?"], 3, scope)
    assert matches == [Match("u1", 9), Match("u3", 9), Match("u2", 5)]
    assert inner.calls == [(4, scope)]
    assert reranker.batches == [["3", "9"], ["5", "9"]]
    assert retriever.unfinished == 0


def test_matches_beyond_the_depth_follow_with_falling_scores() -> None:
    retriever, _, _ = build_retriever("1", "2", "7", "8", "9", depth=2)
    (matches,) = retriever.search(["?"], 5)
    assert names(matches) == "u1 u0 u2 u3 u4"
    assert [match.score for match in matches] == pytest.approx([2, 1, 0.9, 0.8, 0.7])


@pytest.mark.parametrize(
    ("budget", "read", "order"),
    [(0.0, 0, "u0 u1 u2 u3 u4"), (1.0, 2, "u1 u0 u2 u3 u4"), (1.5, 4, "u3 u1 u2 u0 u4"), (9.0, 5, "u4 u3 u1 u2 u0")],
)
def test_when_the_budget_is_spent_the_order_so_far_is_used(
    budget: float, read: int, order: str, caplog: pytest.LogCaptureFixture
) -> None:
    retriever, _, reranker = build_retriever("1", "3", "2", "4", "5", budget=budget)
    with caplog.at_level(logging.WARNING):
        (matches,) = retriever.search(["?"], 5)
    assert names(matches) == order
    assert sum(map(len, reranker.batches)) == read
    scores = [match.score for match in matches]
    assert scores == sorted(scores, reverse=True)
    assert retriever.unfinished == (read < 5)
    assert caplog.messages == ([f"reranking ran out of time after {read} of 5 matches"] if read < 5 else [])


def test_each_query_has_the_whole_budget() -> None:
    retriever, _, _ = build_retriever("1", "3", "2", "4", budget=1.5)
    results = retriever.search(["?", "!"], 4)
    assert [names(matches) for matches in results] == ["u3 u1 u2 u0"] * 2
    assert retriever.unfinished == 0


def test_an_addition_that_failed_leaves_nothing_and_can_be_repeated() -> None:
    retriever, _, _ = build_retriever("1")
    with pytest.raises(BadVectors):
        retriever.add([unit("bad", key="7"), unit("good", key="8")])
    retriever.add([unit("good", key="9")])
    (matches,) = retriever.search(["?"], 5)
    assert matches == [Match("good", 9), Match("u0", 1)]


@pytest.mark.parametrize(("depth", "batch"), [(0, 1), (1, 0), (-1, 5)])
def test_invalid_depth_and_batch_raise(depth: int, batch: int) -> None:
    with pytest.raises(BadSettings, match="depth is"):
        RerankingRetriever(Ordered(), Numbers(), depth=depth, batch=batch)


# -- a real cross-encoder ----------------------------------------------------------------------------------------------


def cross_encoder(starter: Path, folder: Path, labels: int = 1) -> Path:
    """MiniLM with a fresh classification head, saved as transformers saves one."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(starter, num_labels=labels, local_files_only=True)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(starter, local_files_only=True).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def weights(starter_encoder_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cross_encoder(starter_encoder_dir, tmp_path_factory.mktemp("reranker"))


TEXTS = ["Anna has a dog.", "It rains.", "", "Tom " * 600, "Anna has a dog."]


def test_scores_are_those_of_the_model_between_0_and_1_and_in_order(weights: Path) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    scores = CrossEncoderReranker(weights, name="fresh").score("Who has a dog?", TEXTS)
    tokenizer = AutoTokenizer.from_pretrained(weights)
    model = AutoModelForSequenceClassification.from_pretrained(weights)
    with torch.inference_mode():
        logits = [
            model(
                **tokenizer(["Who has a dog?"], [text], truncation=True, max_length=512, return_tensors="pt")
            ).logits.item()
            for text in TEXTS
        ]
    assert scores == pytest.approx([1 / (1 + 2.718281828459045**-logit) for logit in logits], abs=1e-4)
    assert scores[0] == pytest.approx(scores[4], abs=1e-6)
    assert len({round(score, 6) for score in scores}) > 2


def test_a_real_reranker_in_a_real_search(weights: Path) -> None:
    from localmem.retrieval.bm25 import BM25Retriever

    reranker = CrossEncoderReranker(weights, name="fresh")
    retriever = RerankingRetriever(BM25Retriever(), reranker, batch=2)
    keys = ["the dog barked", "a dog", "dog food and a bowl", "my dog sleeps"]
    retriever.add([unit(key) for key in keys])
    (matches,) = retriever.search(["dog"], 4)
    expected = sorted(zip(keys, reranker.score("dog", keys), strict=True), key=lambda each: -each[1])
    assert [match.id for match in matches] == [key for key, _ in expected]
    assert [match.score for match in matches] == pytest.approx([score for _, score in expected], abs=1e-5)


def test_threads_get_their_own_scores(weights: Path) -> None:
    reranker = CrossEncoderReranker(weights, name="fresh")  # loads under the threads, too
    results: dict[int, list[float]] = {}

    def ask(number: int) -> None:
        results[number] = reranker.score(f"question {number}", TEXTS[:2])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(results[n] == pytest.approx(reranker.score(f"question {n}", TEXTS[:2]), abs=1e-5) for n in range(6))


def test_weights_load_lazily_and_without_a_progress_bar(weights: Path, capfd: pytest.CaptureFixture[str]) -> None:
    reranker = CrossEncoderReranker(weights, name="fresh")
    assert reranker.score("dog", []) == []
    assert reranker._loaded is None
    reranker.score("dog", TEXTS)
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


def test_a_missing_folder_and_a_classifier_of_several_classes_raise(starter_encoder_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match="localmem models pull fresh"):
        CrossEncoderReranker(tmp_path / "nowhere", name="fresh")
    reranker = CrossEncoderReranker(cross_encoder(starter_encoder_dir, tmp_path / "three", labels=3), name="three")
    with pytest.raises(BadSettings, match="has 3 classes"):
        reranker.score("dog", ["cat"])


def test_scores_that_are_not_finite_raise(weights: Path, tmp_path: Path) -> None:
    import shutil

    import torch
    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(weights, tmp_path / "broken")
    tensors = load_file(folder / "model.safetensors")
    tensors["classifier.bias"] = torch.full_like(tensors["classifier.bias"], float("nan"))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(BadVectors, match="broken returned scores that are not finite"):
        CrossEncoderReranker(folder, name="broken").score("dog", ["cat"])
