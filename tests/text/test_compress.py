"""Compressors: words are dropped, none is changed. LLMLingua-2's way of choosing is run on small weights made here."""

import json
import random
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from localmem.errors import BadInput, MissingExtra, ModelMissing
from localmem.factory import compressor as build_compressor
from localmem.text.compress import Compressor, LLMLingua2, RandomDrop

if TYPE_CHECKING:
    from llmlingua import PromptCompressor

CONVERSATIONS = Path(__file__).parents[2] / "finetune" / "data" / "conversations.jsonl"

TALK = (
    "User: Well, I was thinking that maybe we could go to Lisbon in May, you know, for 5 days.\n"
    "Assistant: That sounds like a really lovely idea! Lisbon is warm in May; the trams are fun."
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, starter_encoder_dir: Path) -> Path:
    """A classifier of tokens into two labels, with random weights, in the form of LLMLingua-2's BERT."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertForTokenClassification

    place = tmp_path_factory.mktemp("compressor")
    tokenizer = AutoTokenizer.from_pretrained(str(starter_encoder_dir), local_files_only=True)
    state = torch.random.get_rng_state()
    torch.manual_seed(5)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=512,
        num_labels=2,
        initializer_range=0.5,
    )
    BertForTokenClassification(config).save_pretrained(str(place))
    torch.random.set_rng_state(state)
    tokenizer.save_pretrained(str(place))
    return place


def _words(text: str) -> list[str]:
    return "".join(c if c.isalnum() else " " for c in text.lower()).split()


def _is_part(part: list[str], text: list[str]) -> bool:
    words = iter(text)
    return all(word in words for word in part)


@pytest.mark.parametrize("text", [TALK, "여행은 5월에 가자. 리스본이 좋겠다.", "🐶🎂 ok", "word " * 2000])
def test_what_is_kept_stands_in_the_text_in_its_order(folder: Path, text: str) -> None:
    (short,) = LLMLingua2(folder, device="cpu").compress([text], 0.5)
    assert 0 < len(short) < len(text)
    words = iter(text)
    assert all(character in words for character in short if not character.isspace())


def test_one_long_word_is_kept_whole(folder: Path) -> None:
    assert LLMLingua2(folder, device="cpu").compress(["x" * 3000], 0.5) == ["x" * 3000]


def test_a_text_of_many_windows_loses_words_in_all_of_them(folder: Path) -> None:
    (short,) = LLMLingua2(folder, device="cpu").compress([" ".join(f"n{n}" for n in range(1000))], 0.5)
    numbers = [int(word.removeprefix("n")) for word in short.replace(" ", "").split("n") if word.isdigit()]
    assert 300 < len(numbers) < 700
    assert min(numbers) < 100
    assert max(numbers) > 900


def test_the_rate_is_kept_and_all_of_it_is_all(folder: Path) -> None:
    compressor = LLMLingua2(folder, device="cpu")
    (unchanged,) = compressor.compress([TALK], 1.0)
    assert unchanged == " ".join(TALK.split())
    lengths = [len(_words(compressor.compress([TALK], rate)[0])) for rate in (0.25, 0.5, 0.75)]
    assert lengths == sorted(lengths)
    for rate, length in zip((0.25, 0.5, 0.75), lengths, strict=True):
        assert abs(length - rate * len(_words(TALK))) <= 4


def test_a_text_is_compressed_alike_alone_and_among_others(folder: Path) -> None:
    compressor = LLMLingua2(folder, device="cpu")
    texts = [TALK, "", "Short one.", "a longer text about nothing at all " * 200, "   "]
    together = compressor.compress(texts, 0.6)
    assert together[1] == together[4] == ""
    # windows of one text never hold another's words, so neighbours change nothing
    assert together == [compressor.compress([text], 0.6)[0] for text in texts]


def _talks() -> list[str]:
    """40 conversations, of which two are longer than a window."""
    rows = [json.loads(line) for line in CONVERSATIONS.read_text(encoding="utf-8").splitlines()]
    texts = ["\n".join(turn["text"] for turn in row["turns"]) for row in rows if "turns" in row]
    return [*texts[:38], "\n".join(texts[38:43]), "\n".join(texts[43:])]


@pytest.fixture(scope="module")
def xlm_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same in the form of LLMLingua-2's XLM-R: pieces of a vocabulary learned here, where marks follow words."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import XLMRobertaConfig, XLMRobertaForTokenClassification, XLMRobertaTokenizer

    place = tmp_path_factory.mktemp("xlm-roberta-large")
    learner = Tokenizer(models.Unigram())
    learner.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.UnigramTrainer(vocab_size=800, special_tokens=special, unk_token="<unk>", show_progress=False)
    learner.train_from_iterator(_talks(), trainer)
    vocabulary = [(piece, score) for piece, score in json.loads(learner.to_str())["model"]["vocab"]]
    XLMRobertaTokenizer(vocab=vocabulary).save_pretrained(str(place))
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    config = XLMRobertaConfig(
        vocab_size=len(vocabulary), max_position_embeddings=514, num_labels=2, initializer_range=0.5, **sizes
    )
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(5)
        XLMRobertaForTokenClassification(config).save_pretrained(str(place))
    return place


def _package(folder: Path, family: str) -> "PromptCompressor":
    """The package's own code, without its constructor, which fetches a vocabulary; `family` stands for the name."""
    from llmlingua import PromptCompressor

    theirs = PromptCompressor.__new__(PromptCompressor)
    theirs.load_model(str(folder), "cpu", {"trust_remote_code": False, "local_files_only": True})
    theirs.model.eval()
    theirs.model_name = family
    theirs.oai_tokenizer = SimpleNamespace(encode=theirs.tokenizer.backend_tokenizer.model.tokenize)
    theirs.max_batch_size, theirs.max_seq_len, theirs.max_force_token = 8, 512, 0
    theirs.special_tokens, theirs.added_tokens = {*theirs.tokenizer.all_special_tokens}, []
    return theirs


@pytest.mark.parametrize("family", ["bert-base-multilingual-cased", "xlm-roberta-large"])
@pytest.mark.parametrize("rate", [0.25, 0.5, 0.75])
def test_the_words_are_those_that_the_llmlingua_package_keeps(
    folder: Path, xlm_folder: Path, family: str, rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over the same weights. The package frames XLM-R's windows by BERT's special tokens; mended here."""
    from llmlingua import prompt_compressor

    dataset = partial(prompt_compressor.TokenClfDataset, model_name=family)
    monkeypatch.setattr(prompt_compressor, "TokenClfDataset", dataset)
    place = xlm_folder if family.startswith("xlm") else folder
    theirs, texts = _package(place, family), _talks()
    expected = theirs.compress_prompt_llmlingua2(texts, rate=rate)["compressed_prompt_list"]
    ours = LLMLingua2(place, device="cpu").compress(texts, rate)
    assert [_characters(text) for text in ours] == [_characters(text) for text in expected]


def _characters(text: str) -> str:
    return "".join(text.lower().split())


def test_no_global_generator_is_touched(folder: Path) -> None:
    import numpy as np
    import torch

    before = random.getstate(), np.random.get_state()[1].tolist(), torch.random.get_rng_state().tolist()  # type: ignore[index]
    LLMLingua2(folder, device="cpu").compress([TALK], 0.5)
    RandomDrop(3).compress([TALK], 0.5)
    after = random.getstate(), np.random.get_state()[1].tolist(), torch.random.get_rng_state().tolist()  # type: ignore[index]
    assert before == after


def test_missing_weights_are_an_error_when_they_are_needed() -> None:
    def find() -> Path:
        raise ModelMissing("model x is not on this machine: localmem models pull x")

    compressor = LLMLingua2(find)
    with pytest.raises(ModelMissing, match="models pull x"):
        compressor.compress([TALK], 0.5)
    with pytest.raises(ModelMissing, match="there is no compressor in"):
        LLMLingua2(Path("nowhere")).compress([TALK], 0.5)


def test_weights_with_other_labels_are_refused(folder: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer, BertForTokenClassification

    BertForTokenClassification.from_pretrained(str(folder), num_labels=3, ignore_mismatched_sizes=True).save_pretrained(
        str(tmp_path)
    )
    AutoTokenizer.from_pretrained(str(folder)).save_pretrained(str(tmp_path))
    with pytest.raises(BadInput, match="has 3 labels"):
        LLMLingua2(tmp_path).compress([TALK], 0.5)


def test_an_encoder_without_a_trained_head_is_refused(starter_encoder_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="holds BertModel and no compressor"):
        LLMLingua2(starter_encoder_dir).compress([TALK], 0.5)
    with pytest.raises(BadInput, match="holds no compressor"):
        LLMLingua2(tmp_path).compress([TALK], 0.5)


def test_without_torch_the_cure_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"needs 'torch'; run `pip install 'localmem\[cpu\]'`"):
        LLMLingua2(folder).compress([TALK], 0.5)


def test_a_compressor_is_found_by_its_folder(folder: Path) -> None:
    assert build_compressor(str(folder)).compress([TALK], 0.5) == LLMLingua2(folder).compress([TALK], 0.5)


@pytest.mark.parametrize("rate", [0, -0.5, 1.5, float("nan")])
@pytest.mark.parametrize("new", [lambda: RandomDrop(0), lambda: LLMLingua2(Path("nowhere"))])
def test_a_rate_that_cannot_be_is_refused(new: Callable[[], Compressor], rate: float) -> None:
    with pytest.raises(BadInput, match="rate"):
        new().compress([TALK], rate)


def test_random_words_are_kept_by_seed() -> None:
    first, again, other = (RandomDrop(seed).compress([TALK, "", "a b"], 0.5) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert len(first[0].split()) == -(-len(TALK.split()) // 2)
    assert _is_part(first[0].split(), TALK.split())
    assert first[1] == ""
    assert len(first[2]) == 1
