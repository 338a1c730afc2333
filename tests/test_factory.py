"""The settings become the parts that they name."""

from pathlib import Path

import pytest

from localmem import backbones, factory
from localmem.config import Settings, load_settings
from localmem.errors import BadInput, BadSettings, ModelMissing
from localmem.retrieval.base import Retriever, Scope
from localmem.settings_sections import RetrievalSettings
from tests.fakes import START, WordEncoder, unit


def make_retriever(file: Path | None = None, **options: object) -> Retriever:
    settings = Settings(retrieval=RetrievalSettings.model_validate(options))
    retriever = factory.retriever(settings, WordEncoder, file)
    retriever.add([unit(f"u{n}", f"the dog number{n}", time=START.replace(day=n + 1)) for n in range(9)])
    return retriever


def ids(retriever: Retriever, query: str) -> list[str]:
    (matches,) = retriever.search([query], 9, Scope(now=START.replace(day=20)))
    return [match.id for match in matches]


@pytest.mark.parametrize("retriever", ["dense", "bm25", "hybrid"])
@pytest.mark.parametrize("index", ["auto", "flat", "hnsw", "ivf"])
def test_every_retriever_over_every_index(retriever: str, index: str) -> None:
    assert ids(make_retriever(retriever=retriever, index=index, index_half=index != "ivf"), "number3")[0] == "u3"


def test_an_index_that_is_built_is_kept_in_the_file(tmp_path: Path) -> None:
    make_retriever(tmp_path / "kept", retriever="hybrid", index="hnsw")
    assert (tmp_path / "kept").is_file()


def test_a_half_life_puts_the_newer_first() -> None:
    assert ids(make_retriever(retriever="dense"), "the dog") == [f"u{n}" for n in range(9)]
    assert ids(make_retriever(retriever="dense", half_life_days=30), "the dog") == [f"u{n}" for n in reversed(range(9))]


def test_dates_in_a_question_count_when_they_shall() -> None:
    assert len(ids(make_retriever(), "the dog on 2026-03-04")) == 9
    assert ids(make_retriever(dates_in_query=True), "the dog on 2026-03-04") == ["u3"]


def test_a_reranker_in_a_folder_reads_the_first_matches(starter_encoder_dir: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = AutoModelForSequenceClassification.from_pretrained(starter_encoder_dir, num_labels=1)
    model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(starter_encoder_dir).save_pretrained(tmp_path)
    retriever = make_retriever(
        retriever="bm25", rerank=str(tmp_path), rerank_depth=9, rerank_budget_ms=600_000, device="cpu"
    )
    (matches,) = retriever.search(["the dog number3"], 9)
    reader = factory.reranker(str(tmp_path), "cpu")
    keys = {f"u{n}": f"the dog number{n}" for n in range(9)}
    scores = dict(zip(keys, reader.score("the dog number3", list(keys.values())), strict=True))
    assert [match.id for match in matches] == sorted(scores, key=lambda name: -scores[name])
    assert factory.reranker(str(tmp_path), "cpu") is reader


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("ms-marco-minilm-l6-v2", ModelMissing, "localmem models pull ms-marco-minilm-l6-v2"),
        ("minilm-l6-v2", BadSettings, "is of the role encoder"),
        ("ms-marco", BadInput, "no model 'ms-marco'"),
    ],
)
def test_a_reranker_that_is_not_here_is_refused(name: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        make_retriever(rerank=name)


def test_a_stage_is_reported_when_it_begins_and_every_ten_seconds() -> None:
    lines: list[str] = []
    stages = backbones._report_stages(lines.append)
    for tick in range(100):
        stages("loading" if tick < 60 else "compiling", tick / 4)
    stages("ready", 25.0)
    assert lines == [
        "vLLM: loading (0 s)",
        "vLLM: loading (10 s)",
        "vLLM: compiling (15 s)",
        "vLLM: compiling (20 s)",
        "vLLM: ready (25 s)",
    ]


def test_keys_are_denoised_by_an_installed_compressor_else_by_the_shipped_one(monkeypatch: pytest.MonkeyPatch) -> None:
    present = {"minilm-l6-v2"}
    monkeypatch.setattr(factory, "model_state", lambda model, _: "present" if model.name in present else "absent")
    assert factory.installed_compressor() == "minilm-l6-v2-compressor"
    present.add("llmlingua-2-xlm-roberta-large")
    assert factory.installed_compressor() == "llmlingua-2-xlm-roberta-large"
    present.clear()
    assert factory.installed_compressor() is None


def test_the_shipped_compressor_keeps_what_people_ask_about(starter_encoder_dir: Path) -> None:
    assert starter_encoder_dir.is_dir()
    text = "User: Oh well, you know how it is, my dog Rex was at the vet on Tuesday and so on."
    (key,) = factory.compressor("minilm-l6-v2-compressor", "cpu").compress([text], 0.5)
    assert {"dog", "Rex", "vet", "Tuesday"} <= set(key.replace(",", "").replace(".", "").split())
    assert "Oh well" not in key


def test_a_context_longer_than_the_models_is_refused_before_vllm_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backbones, "find_spec", lambda name: object())
    settings = load_settings(None, {"llm": {"backend": "vllm", "context_length": 16384}})
    with pytest.raises(BadSettings, match=r"context_length is 16384 and smollm2-135m-instruct reads 8192 tokens"):
        backbones._own_vllm(settings, print)
