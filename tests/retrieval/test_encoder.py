"""SentenceEncoder on the real MiniLM, and CachedEncoder with every kind of stored vector."""

import logging
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from localmem.errors import BadSettings, BadVectors, ModelMissing
from localmem.llm.wrappers import in_background
from localmem.retrieval import encoder as encoder_module
from localmem.retrieval.base import Side
from localmem.retrieval.encoder import CachedEncoder, SentenceEncoder, check_vectors
from tests.fakes import WordEncoder

TEXTS = [
    "Anna has a dog.",
    "Anna owns a puppy and walks it every morning in the park.",
    "Interest rates rose.",
    "",
    "개",
]


@pytest.fixture(scope="module")
def encoder(starter_encoder_dir: Path) -> SentenceEncoder:
    return SentenceEncoder(starter_encoder_dir, name="minilm", batch_size=2, dtype="float32")


@pytest.fixture
def calls(encoder: SentenceEncoder, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many texts each run of the network was for."""
    counts: list[int] = []
    run = encoder._batched._call

    def spy(texts: list[str]) -> list[tuple[NDArray[np.float32], bool]]:
        counts.append(len(texts))
        return run(texts)

    monkeypatch.setattr(encoder._batched, "_call", spy)
    return counts


def test_rows_are_of_unit_length_and_in_order(encoder: SentenceEncoder) -> None:
    rows = encoder.encode(TEXTS, "passage")
    assert rows.shape == (5, encoder.dimension) == (5, 384)
    assert rows.dtype == np.float32
    assert np.linalg.norm(rows, axis=1) == pytest.approx(np.ones(5), abs=1e-5)
    for text, row in zip(TEXTS, rows, strict=True):
        assert encoder.encode([text], "passage")[0] == pytest.approx(row, abs=1e-5)
    assert rows[0] @ rows[1] > rows[0] @ rows[2] + 0.3


def test_vectors_are_those_of_sentence_transformers(encoder: SentenceEncoder, starter_encoder_dir: Path) -> None:
    from sentence_transformers import SentenceTransformer

    reference = SentenceTransformer(str(starter_encoder_dir), device="cpu", local_files_only=True)
    expected = reference.encode(TEXTS, normalize_embeddings=True, show_progress_bar=False)
    assert encoder.encode(TEXTS, "query") == pytest.approx(expected, abs=1e-5)


def test_every_other_architecture_runs_on_sentence_transformers(
    encoder: SentenceEncoder, starter_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localmem.retrieval.encoder.read_layout", lambda _: None)
    other = SentenceEncoder(starter_encoder_dir, name="minilm", dtype="float32", max_length=8)
    long = "one two three four five six seven eight"
    rows = other.encode([*TEXTS, long], "passage")
    assert rows[[0, 2, 3, 4]] == pytest.approx(encoder.encode(TEXTS, "passage")[[0, 2, 3, 4]], abs=1e-5)
    assert other.truncated == 2
    assert other.count_tokens([*TEXTS, long]) == encoder.count_tokens([*TEXTS, long]) == [7, 15, 6, 2, 4, 10]
    assert other.dimension == 384


def test_no_texts_give_no_rows(encoder: SentenceEncoder) -> None:
    assert encoder.encode([], "passage").shape == (0, 384)


def test_nothing_is_drawn(
    encoder: SentenceEncoder, starter_encoder_dir: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    SentenceEncoder(starter_encoder_dir, name="minilm").encode(TEXTS * 20, "passage")
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


def test_a_bar_that_was_switched_off_stays_off(starter_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.utils import logging as switch

    monkeypatch.setattr("localmem.retrieval.encoder.read_layout", lambda _: None)
    for active in (True, False):
        (switch.enable_progress_bar if active else switch.disable_progress_bar)()
        SentenceEncoder(starter_encoder_dir, name="minilm").encode(["dog"], "query")
        assert switch.is_progress_bar_enabled() is active
    switch.enable_progress_bar()


def test_texts_over_the_window_are_cut_counted_and_logged(
    starter_encoder_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    encoder = SentenceEncoder(starter_encoder_dir, name="minilm", max_length=16, batch_size=2)
    long = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"  # 14 tokens and 2 marks
    with caplog.at_level(logging.INFO, logger="localmem.retrieval.encoder"):
        complete = encoder.encode([long, "short"], "passage")
    assert (caplog.messages, encoder.truncated) == ([], 0)
    with caplog.at_level(logging.INFO, logger="localmem.retrieval.encoder"):
        cut = encoder.encode([f"{long} fifteen", "short", f"{long} sixteen seventeen", long], "query")
        encoder.encode([f"{long} eighteen"], "passage")
    assert caplog.messages == ["minilm: texts truncated to its window of 16 tokens: 2"]
    assert encoder.truncated == 3
    with caplog.at_level(logging.INFO, logger="localmem.retrieval.encoder"):
        encoder.encode([f"{long} {number} times" for number in range(9)], "passage")
    assert caplog.messages[1:] == ["minilm: texts truncated to its window of 16 tokens: 12"]
    assert cut[0] == pytest.approx(complete[0], abs=1e-5)


def test_prefixes_go_before_the_text_of_their_side(starter_encoder_dir: Path, encoder: SentenceEncoder) -> None:
    prefixes: Mapping[Side, str] = {"query": "query: ", "passage": "passage: "}
    prefixed = SentenceEncoder(starter_encoder_dir, name="minilm", prefixes=prefixes, dtype="float32")
    assert prefixed.encode(["dog"], "query") == pytest.approx(encoder.encode(["query: dog"], "query"), abs=1e-5)
    assert prefixed.encode(["dog"], "passage") == pytest.approx(encoder.encode(["passage: dog"], "query"), abs=1e-5)


def test_texts_encoded_just_before_are_not_encoded_again(
    encoder: SentenceEncoder, calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn's sentences are compared with older ones, as queries, and indexed, as passages."""
    monkeypatch.setattr(encoder_module, "_RECENT", 50)
    first = encoder.encode(["I moved to Porto.", "It rains."], "query")
    second = encoder.encode(["It rains.", "I moved to Porto. It rains.", "It rains."], "passage")
    encoder.encode([f"{number} of many" for number in range(100)], "passage")
    encoder.encode(["It rains."], "query")
    assert calls == [2, 1, *[2] * 50, 1]
    assert (second[[0, 2]] == first[[1, 1]]).all()


def test_identity_differs_with_all_that_changes_a_stored_vector(
    starter_encoder_dir: Path, encoder: SentenceEncoder
) -> None:
    def identity(checksum: str = "1" * 64, max_length: int | None = None, **prefixes: str) -> str:
        sides: Mapping[Side, str] = {"query": prefixes.get("query", ""), "passage": prefixes.get("passage", "")}
        return SentenceEncoder(
            starter_encoder_dir, name="minilm", checksum=checksum, max_length=max_length, prefixes=sides
        ).identity

    others = {identity(), identity("2" * 64), identity(max_length=64), identity(passage="p: "), encoder.identity}
    assert len(others) == 5
    assert identity() == identity(query="q: ")
    assert encoder.identity == SentenceEncoder(starter_encoder_dir, name="minilm", batch_size=7).identity


def test_identity_and_a_wrong_folder_need_no_weights(starter_encoder_dir: Path, tmp_path: Path) -> None:
    encoder = SentenceEncoder(starter_encoder_dir, name="minilm")
    assert encoder.identity.startswith("minilm@53aa51172d142c89/")
    assert encoder._loaded is None
    with pytest.raises(ModelMissing, match="localmem models pull minilm"):
        SentenceEncoder(tmp_path, name="minilm")


def test_an_unknown_device_raises(starter_encoder_dir: Path) -> None:
    with pytest.raises(BadSettings, match="'tpu'"):
        SentenceEncoder(starter_encoder_dir, name="minilm", device="tpu").encode(["dog"], "query")


def test_threads_get_their_own_rows(starter_encoder_dir: Path) -> None:
    encoder = SentenceEncoder(starter_encoder_dir, name="minilm", dtype="float32")  # loads under the threads, too
    texts = [f"{word} number {n}" for n in range(12) for word in ("dog", "a longer text about a cat and a house")]
    results: dict[str, NDArray[np.float32]] = {}

    def encode(text: str) -> None:
        results[text] = encoder.encode([text], "passage")[0]

    threads = [threading.Thread(target=encode, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = encoder.encode(texts, "passage")
    assert np.stack([results[text] for text in texts]) == pytest.approx(expected, abs=1e-5)


class DictCache:
    """The store's table as a dict."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], bytes] = {}

    def get(self, identity: str, digests: Sequence[str]) -> dict[str, bytes]:
        return {digest: self.rows[identity, digest] for digest in digests if (identity, digest) in self.rows}

    def put(self, identity: str, rows: Mapping[str, bytes]) -> None:
        self.rows |= {(identity, digest): row for digest, row in rows.items()}


def test_a_passage_is_encoded_once_and_comes_back_as_it_was() -> None:
    inner, cache = WordEncoder(), DictCache()
    first = CachedEncoder(inner, cache).encode(["dog", "cat", "dog"], "passage")
    second = CachedEncoder(inner, cache).encode(["cow", "dog", "cat"], "passage")
    assert inner.encoded == ["dog", "cat", "cow"]
    assert np.array_equal(first[[0, 1, 0]], first[[2, 1, 0]])
    assert np.array_equal(second[[1, 2]], first[:2])
    assert np.array_equal(second, WordEncoder().encode(["cow", "dog", "cat"], "passage"))
    assert second.dtype == np.float32


def test_queries_are_not_cached() -> None:
    inner, cache = WordEncoder(), DictCache()
    encoder = CachedEncoder(inner, cache)
    encoder.encode(["dog"], "query")
    encoder.encode(["dog"], "query")
    assert inner.encoded == ["dog", "dog"]
    assert cache.rows == {}


def test_what_is_read_ahead_is_encoded_once_and_stored_when_it_is_added(
    encoder: SentenceEncoder, calls: list[int]
) -> None:
    encoder._recent.clear()
    cache = DictCache()
    cached = CachedEncoder(encoder, cache)
    cached.read_ahead(["User: Hi. I keep bees.", "I keep bees."])
    assert (calls, cache.rows) == ([2], {})
    cached.encode(["I keep bees."], "query")
    cached.encode(["User: Hi. I keep bees.", "I keep bees."], "passage")
    assert (calls, len(cache.rows)) == ([2], 2)
    CachedEncoder(WordEncoder(), cache).read_ahead(["I keep bees."])  # it remembers nothing


def test_no_texts_through_the_cache() -> None:
    assert CachedEncoder(WordEncoder(), DictCache()).encode([], "passage").shape == (0, 512)


def test_another_encoder_finds_nothing_of_the_first() -> None:
    cache = DictCache()
    CachedEncoder(WordEncoder(), cache).encode(["dog"], "passage")
    other = WordEncoder()
    other.identity = "words-of-another-kind"
    CachedEncoder(other, cache).encode(["dog"], "passage")
    assert other.encoded == ["dog"]
    assert len(cache.rows) == 2


def test_with_all_vectors_cached_the_weights_stay_unloaded(starter_encoder_dir: Path, encoder: SentenceEncoder) -> None:
    cache = DictCache()
    CachedEncoder(encoder, cache).encode(TEXTS, "passage")
    cold = SentenceEncoder(starter_encoder_dir, name="minilm")
    rows = CachedEncoder(cold, cache).encode(TEXTS[::-1], "passage")
    assert cold._loaded is None
    assert rows[::-1] == pytest.approx(encoder.encode(TEXTS, "passage"), abs=1e-6)


@pytest.mark.parametrize("damage", [b"", b"abc", b"\0\0\x80\x7f" * 512, b"\0\0\x80\x3f" * 512])
def test_a_damaged_vector_is_encoded_again(damage: bytes, caplog: pytest.LogCaptureFixture) -> None:
    cache = DictCache()
    encoder = CachedEncoder(WordEncoder(), cache)
    complete = encoder.encode(["dog", "cat"], "passage")
    cache.rows[next(iter(cache.rows))] = damage
    with caplog.at_level(logging.WARNING):
        assert np.array_equal(encoder.encode(["dog", "cat"], "passage"), complete)
    assert encoder.damaged == 1
    assert caplog.messages == ["1 cached vectors of words-512 are damaged and are encoded again"]
    assert np.array_equal(CachedEncoder(WordEncoder(), cache).encode(["dog"], "passage"), complete[:1])


def test_invalid_vectors_are_not_cached() -> None:
    class Broken(WordEncoder):
        def encode(self, texts: Sequence[str], side: Side) -> NDArray[np.float32]:
            return super().encode(texts, side) * np.float32("nan")

    cache = DictCache()
    with pytest.raises(BadVectors, match="words-512 returned 2 of 2 vectors"):
        CachedEncoder(Broken(), cache).encode(["dog", "cat"], "passage")
    assert cache.rows == {}


def test_checked_wants_one_row_a_text() -> None:
    with pytest.raises(BadVectors, match=r"shape \(4,\)"):
        check_vectors(np.zeros(4, dtype=np.float32), "x")
    rows = np.array([[1, 0], [0, 0]], dtype=np.float32)
    assert check_vectors(rows, "x") is rows


def plain_bert(folder: Path, words: Sequence[str]) -> Path:
    """A small BERT with random weights as transformers saves it, without any file of sentence-transformers."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    torch.manual_seed(3)
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]))
    BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=12).save_pretrained(folder)
    BertModel(
        BertConfig(
            vocab_size=len(words) + 5,
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=12,
            initializer_range=0.5,
        )
    ).save_pretrained(folder)
    return folder


def test_a_plain_transformers_folder_is_mean_pooled_over_the_tokens_without_padding(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As Contriever comes, whose own code averages so."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    words = ["anna", "has", "a", "dog", "and", "cat"]
    folder = plain_bert(tmp_path / "plain", words)
    capfd.readouterr()
    texts = ["anna has a dog", "cat", "a cat and a dog and anna has a cat"]
    rows = SentenceEncoder(folder, name="plain", batch_size=8, dtype="float32").encode(texts, "passage")
    captured = capfd.readouterr()
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    for text, row in zip(texts, rows, strict=True):
        with torch.inference_mode():
            state = model(**tokenizer(text, truncation=True, max_length=12, return_tensors="pt")).last_hidden_state[0]
        mean = state.mean(dim=0).numpy()
        assert row == pytest.approx(mean / np.linalg.norm(mean), abs=1e-5)
    assert captured.out + captured.err == ""


def test_a_query_over_the_window_is_cut_counted_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from localmem.retrieval.dense import DenseRetriever
    from tests.fakes import unit

    folder = plain_bert(tmp_path / "plain", ["anna", "has", "a", "dog"])
    encoder = SentenceEncoder(folder, name="plain")
    retriever = DenseRetriever(encoder)
    retriever.add([unit("a", "anna has a dog"), unit("b", "dog dog")])
    with caplog.at_level(logging.INFO, logger="localmem.retrieval.encoder"):
        (matches,) = retriever.search(["dog " * 11 + "anna"], 2)
    assert len(matches) == 2
    assert [match.id for match in matches] == [match.id for match in retriever.search(["dog " * 10], 2)[0]]
    assert encoder.truncated == 1
    assert [message for message in caplog.messages if "truncated" in message] == [
        "plain: texts truncated to its window of 12 tokens: 1"
    ]


def test_texts_of_the_background_let_questions_in_between(encoder: SentenceEncoder, calls: list[int]) -> None:
    """So a question waits for a few of them, not for all that a session's end encodes."""
    texts = [f"text {number}" for number in range(10)]
    batches = encoder.encode(texts, "passage")
    encoder._recent.clear()
    with in_background():
        background = encoder.encode(texts, "passage")
        assert encoder.encode([], "passage").shape == (0, encoder.dimension)
    assert calls == [2, 2, 2, 2, 2, 4, 4, 2]
    assert background == pytest.approx(batches, abs=1e-5)


@pytest.mark.timeout(60)
def test_a_question_waits_for_one_batch_of_another_users_texts(
    starter_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = SentenceEncoder(starter_encoder_dir, name="minilm", device="cpu")
    run, batches = encoder._batched._call, list[list[str]]()

    def wait_for_question(texts: list[str]) -> list[tuple[NDArray[np.float32], bool]]:
        while not batches and not encoder._batched._waiting:
            pass
        batches.append(texts)
        return run(texts)

    monkeypatch.setattr(encoder._batched, "_call", wait_for_question)
    passages = [f"passage {number}" for number in range(100, 140)]
    with ThreadPoolExecutor(2) as pool:
        adding = pool.submit(encoder.encode, passages, "passage")
        while encoder._batched._leader is None:
            pass
        assert pool.submit(encoder.encode, ["Where do I live?"], "query").result().shape == (1, encoder.dimension)
        assert adding.result().shape == (40, encoder.dimension)
    assert batches == [passages[:16], ["Where do I live?"], passages[16:32], passages[32:]]
