"""Labels from a text and a shorter one: word alignment, unreliable texts, and extracts by a local model."""

import json
from pathlib import Path

import pytest

from finetune.trainers.compressor import (
    CompressionPair,
    Extractor,
    LabelledText,
    align_words,
    drop_unreliable,
    make_stemmer,
    mark_kept_words,
    read_compression_pairs,
    read_texts,
)
from localmem.errors import BadInput
from localmem.llm.scripted import ScriptedLLM
from localmem.types import Prompt
from tests.evaluation.fixtures import write_records

TALK = "Ana: Well, I have been having trouble with the two parrots lately."


def _words(label: LabelledText) -> list[str]:
    return [label.text[start:end] for start, end in label.keep]


def test_words_are_aligned_by_their_stems_in_order() -> None:
    label = align_words(CompressionPair(TALK, "Ana has trouble: two parrot!"), make_stemmer("english"))
    assert _words(label) == ["Ana", "trouble", "two", "parrots"]
    assert label.variation == pytest.approx(1 / 5)  # "has" is no form of have to a stemmer
    assert label.gap == 0
    plain = align_words(CompressionPair(TALK, "Ana parrot"), make_stemmer("none"))
    assert _words(plain) == ["Ana"]
    assert _words(align_words(CompressionPair("パンダが好き", "パ好"), make_stemmer("none"))) == ["パ", "好"]


def test_a_target_takes_the_nearest_free_word_within_the_window() -> None:
    assert mark_kept_words(list("abcab"), list("ba"), 5) == [True, True, False, False, False]
    assert mark_kept_words(list("abcab"), list("cb"), 5) == [False, True, True, False, False]
    assert mark_kept_words(list("axxxb"), list("b"), 3) == [False] * 5
    assert mark_kept_words(list("aab"), list("aaa"), 3) == [True, True, False]


def test_a_word_that_is_already_aligned_widens_the_gap() -> None:
    label = align_words(CompressionPair("tea is tea now", "tea tea tea"), make_stemmer("none"))
    assert _words(label) == ["tea", "tea"]
    assert label.gap == pytest.approx(1 / 4)
    assert label.variation == 0


def test_unreliable_texts_are_dropped_and_counted() -> None:
    good = [LabelledText(f"t{n}", ((0, 1),), n / 1000, 0.0) for n in range(18)]
    invented, gapped, empty = (
        LabelledText("invented", ((0, 1),), 0.9, 0.0),
        LabelledText("gap", ((0, 1),), 0.0, 0.5),
        LabelledText("empty", (), 1.0, 0.0),
    )
    remaining, dropped = drop_unreliable([*good, invented, gapped, empty])
    assert remaining == good
    assert dropped == {"no word in common": 1, "variation": 1, "gap": 1}
    assert drop_unreliable(good[:1]) == (
        good[:1],
        {"no word in common": 0, "variation": 0, "gap": 0},
    )


def test_both_forms_of_file_are_read(tmp_path: Path) -> None:
    path = write_records(tmp_path, [{"dialogue": "a b", "summary": "b"}, {"text": "c d", "kept": "d"}], lines=True)
    assert read_compression_pairs(path) == [("a b", "b"), ("c d", "d")]
    assert read_texts(path) == ["a b", "c d"]
    bare = write_records(tmp_path, [{"text": "a b"}], "bare.jsonl", lines=True)
    with pytest.raises(BadInput, match="line 1: neither kept nor summary is set"):
        read_compression_pairs(bare)
    with pytest.raises(BadInput, match="unknown stemmer language 'klingon'"):
        make_stemmer("klingon")


def test_a_model_is_asked_once_for_each_part(tmp_path: Path) -> None:
    prompts: list[str] = []

    def answer(prompt: Prompt) -> str:
        prompts.append(prompt.messages[-1].content)
        assert prompt.name == "compressor/extract"
        return "" if "nothing" in prompts[-1] else "trouble parrots"

    texts = [TALK, "nothing at all", TALK]
    path = tmp_path / "run" / "labels.jsonl"
    expected = [CompressionPair(TALK, "trouble parrots")]
    assert Extractor(ScriptedLLM(answer), path, lambda _: None)(texts) == expected
    assert len(prompts) == 2
    assert TALK in prompts[0]
    with path.open("a", encoding="utf-8") as stream:
        stream.write('{"digest": "brok')
    assert Extractor(ScriptedLLM(answer), path, lambda _: None)(texts) == expected
    assert len(prompts) == 2  # both answers are stored, the empty one too
    assert len([json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]) == 2
