"""Labels out of a text and a shorter one: what is aligned with what, what cannot be learned from, who shortens."""

import json
from pathlib import Path

import pytest
from finetune.extractive_labels import Extractor

from finetune.compression_labels import (
    Labelled,
    Shortened,
    aligned,
    labelled,
    read_shortened,
    read_texts,
    sound,
    stemmer,
)
from localmem.errors import BadInput
from localmem.llm.scripted import ScriptedLLM
from localmem.types import Prompt
from tests.evaluation.fixtures import written

TALK = "Ana: Well, I have been having trouble with the two parrots lately."


def _kept(one: Labelled) -> list[str]:
    return [one.text[start:end] for start, end in one.kept]


def test_words_are_found_by_their_stems_in_their_order() -> None:
    found = labelled(Shortened(TALK, "Ana has trouble: two parrot!"), stemmer("english"))
    assert _kept(found) == ["Ana", "trouble", "two", "parrots"]
    assert found.variation == pytest.approx(1 / 5)  # "has" is no form of have to a stemmer
    assert found.gap == 0
    plain = labelled(Shortened(TALK, "Ana parrot"), stemmer("none"))
    assert _kept(plain) == ["Ana"]
    assert _kept(labelled(Shortened("パンダが好き", "パ好"), stemmer("none"))) == ["パ", "好"]


def test_a_word_takes_the_nearest_free_one_within_the_window() -> None:
    assert aligned(list("abcab"), list("ba"), 5) == [True, True, False, False, False]
    assert aligned(list("abcab"), list("cb"), 5) == [False, True, True, False, False]
    assert aligned(list("axxxb"), list("b"), 3) == [False] * 5
    assert aligned(list("aab"), list("aaa"), 3) == [True, True, False]


def test_a_word_that_is_there_but_taken_widens_the_gap() -> None:
    found = labelled(Shortened("tea is tea now", "tea tea tea"), stemmer("none"))
    assert _kept(found) == ["tea", "tea"]
    assert found.gap == pytest.approx(1 / 4)
    assert found.variation == 0


def test_texts_that_went_badly_are_left_out_and_counted() -> None:
    good = [Labelled(f"t{n}", ((0, 1),), n / 1000, 0.0) for n in range(18)]
    made_up, gapped, empty = (
        Labelled("made up", ((0, 1),), 0.9, 0.0),
        Labelled("gap", ((0, 1),), 0.0, 0.5),
        Labelled("empty", (), 1.0, 0.0),
    )
    kept, dropped = sound([*good, made_up, gapped, empty])
    assert kept == good
    assert dropped == {"no word in common": 1, "variation": 1, "gap": 1}
    assert sound(good[:1]) == (good[:1], {"no word in common": 0, "variation": 0, "gap": 0})  # alike texts all stay


def test_both_forms_of_file_are_read(tmp_path: Path) -> None:
    path = written(tmp_path, [{"dialogue": "a b", "summary": "b"}, {"text": "c d", "kept": "d"}], lines=True)
    assert read_shortened(path) == [("a b", "b"), ("c d", "d")]
    assert read_texts(path) == ["a b", "c d"]
    bare = written(tmp_path, [{"text": "a b"}], "bare.jsonl", lines=True)
    with pytest.raises(BadInput, match="line 1: it has neither kept nor summary"):
        read_shortened(bare)
    with pytest.raises(BadInput, match="no stemmer knows 'klingon'"):
        stemmer("klingon")


def test_a_model_crosses_words_out_once(tmp_path: Path) -> None:
    asked: list[str] = []

    def answer(prompt: Prompt) -> str:
        asked.append(prompt.messages[-1].content)
        assert prompt.name == "compressor/extract"
        return "" if "nothing" in asked[-1] else "trouble parrots"

    texts = [TALK, "nothing at all", TALK]
    path = tmp_path / "run" / "labels.jsonl"
    expected = [Shortened(TALK, "trouble parrots")]
    assert Extractor(ScriptedLLM(answer), path, lambda _: None)(texts) == expected
    assert len(asked) == 2
    assert TALK in asked[0]
    with path.open("a", encoding="utf-8") as stream:
        stream.write('{"digest": "brok')
    assert Extractor(ScriptedLLM(answer), path, lambda _: None)(texts) == expected
    assert len(asked) == 2  # both answers were kept, the empty one too
    assert len([json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]) == 2
