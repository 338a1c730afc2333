"""Sentences as models write them, and strict JSON."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localmem.text.parse import complete_sentences, sentences
from localmem.types import Completion


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("  \n\n", []),
        ("***\n---\n...", []),
        ("Anna has a dog", ["Anna has a dog"]),
        ("Anna has a dog. Tom has none.", ["Anna has a dog.", "Tom has none."]),
        ("Anna has a dog\nTom has none", ["Anna has a dog", "Tom has none"]),
        ("Anna   has\ta dog .", ["Anna has a dog ."]),
        ("Really?! Yes. OK!", ["Really?!", "Yes.", "OK!"]),
        ("Dr. Bo met J. K. Rowling in St. Louis. He left.", ["Dr. Bo met J. K. Rowling in St. Louis.", "He left."]),
        ("So do I. We left.", ["So do I.", "We left."]),
        ("It costs 3.5 dollars, e.g. at Bo's. Fine.", ["It costs 3.5 dollars, e.g. at Bo's.", "Fine."]),
        ('"Stop!" she said. "Now." He ran.', ['"Stop!" she said.', "Now.", "He ran."]),
        ("猫が好きです。犬も好き！", ["猫が好きです。", "犬も好き！"]),
        ("민수는 개가 있다. 이름은 바둑이다.", ["민수는 개가 있다.", "이름은 바둑이다."]),
    ],
)
def test_prose(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


@pytest.mark.parametrize("marker", ["1.", "2)", "(3)", "4:", "-", "*", "•", "–", "a)", "  -", "12."])
def test_list_markers_go(marker: str) -> None:
    assert sentences(f"{marker} Anna has a dog.\n{marker} Tom left") == ["Anna has a dog.", "Tom left"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Sure! Here is what I know:\n- Anna has a dog.\n- Tom left.", ["Anna has a dog.", "Tom left."]),
        ("## Memories\n**About Anna:**\n1. Anna has a dog.\n", ["Anna has a dog."]),
        ("1. Anna has a dog. It barks.\n2. Tom left.", ["Anna has a dog. It barks.", "Tom left."]),
        ("- Anna has\n  a dog\n- Tom left", ["Anna has a dog", "Tom left"]),
        ("- Anna has\na dog\n- Tom left", ["Anna has a dog", "Tom left"]),
        ("- Anna has a dog.\nTom left. Bo stayed.", ["Anna has a dog.", "Tom left.", "Bo stayed."]),
        ("- Anna has a dog\n\nThat is all", ["Anna has a dog", "That is all"]),
        ("1.\n2. Anna has a dog", ["Anna has a dog"]),
        ('1. "Anna has a dog."\n2. **Tom left.**\n3. *Bo* stayed', ["Anna has a dog.", "Tom left.", "*Bo* stayed"]),
        ("- **Anna**: has a `dog`", ["Anna: has a dog"]),
        ('- He said "no."\n- "A" and "B"', ['He said "no."', '"A" and "B"']),
        ("1990 was good\n12:30 is noon", ["1990 was good", "12:30 is noon"]),
    ],
)
def test_lists(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


@given(st.text())
def test_every_sentence_is_one_clean_line(text: str) -> None:
    for sentence in sentences(text):
        assert sentence == " ".join(sentence.split())
        assert any(character.isalnum() for character in sentence)


PLAIN = st.from_regex(r"[A-Z][a-z]{1,8}( [a-z]{1,8}){1,5}[.!?]", fullmatch=True)


@given(
    st.lists(PLAIN.filter(lambda text: not re.search(r"\b(mr|mrs|ms|dr|prof|st|mt|vs|approx|cf)\.", text)), max_size=6)
)
def test_plain_sentences_come_back_however_they_are_laid_out(texts: list[str]) -> None:
    assert sentences(" ".join(texts)) == texts
    assert sentences("\n".join(texts)) == texts
    assert sentences("\n".join(f"{n}. {text}" for n, text in enumerate(texts, 1))) == texts
    assert sentences("\n".join(f"- {text}" for text in texts)) == texts


def test_a_sentence_cut_at_the_token_limit_is_left_out() -> None:
    cut = Completion("Bo sails. Bo has a", finish="length")
    assert complete_sentences(cut) == ["Bo sails."]
    assert complete_sentences(Completion("Bo sails. Bo has a")) == ["Bo sails.", "Bo has a"]
    assert complete_sentences(Completion("Bo has a", finish="length")) == []
    assert complete_sentences(Completion("Bo has a", finish="length"), at_least_one=True) == ["Bo has a"]
