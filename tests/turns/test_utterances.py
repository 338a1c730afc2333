"""Which turns are evidence, denials, corrections or questions about the past, in several languages."""

from pathlib import Path

import pytest

from localmem.files import read_yaml
from localmem.text.parse import sentences
from localmem.turns.utterances import (
    adds_nothing,
    asks_about_past,
    asks_about_replies,
    asks_only,
    has_verb,
    is_correction,
    is_denial,
    is_english,
    is_evidence,
    is_small_talk,
    needs_no_memory,
    only_asks_back,
    split_sentences,
)


def _lines(*kinds: str) -> list[str]:
    """The lines of these kinds in utterances.yaml, of all languages."""
    table = read_yaml(Path(__file__).with_name("utterances.yaml")).values()
    languages = [language for language in table if isinstance(language, dict)]
    return [line for language in languages for kind in kinds for line in language.get(kind, [])]


@pytest.mark.parametrize("text", _lines("questions", "courtesies", "requests"))
def test_questions_requests_and_courtesies_are_no_evidence(text: str) -> None:
    assert not is_evidence(text)


@pytest.mark.parametrize("text", _lines("general"))
def test_general_requests_need_no_memory(text: str) -> None:
    assert needs_no_memory(text)
    assert needs_no_memory(text.lower().rstrip("?？"))


@pytest.mark.parametrize("text", _lines("questions", "personal", "statements"))
def test_what_may_be_about_the_user_needs_memory(text: str) -> None:
    assert not needs_no_memory(text)


@pytest.mark.parametrize("text", _lines("statements"))
def test_what_tells_something_is_evidence(text: str) -> None:
    assert is_evidence(text)


@pytest.mark.parametrize("text", _lines("denials"))
def test_denials_are_recognised(text: str) -> None:
    assert is_denial(text)


@pytest.mark.parametrize("text", _lines("answers"))
def test_answers_are_no_denials(text: str) -> None:
    assert not is_denial(text)


@pytest.mark.parametrize("text", _lines("courtesies"))
def test_courtesies_are_small_talk(text: str) -> None:
    assert is_small_talk(text)


@pytest.mark.parametrize("text", _lines("questions"))
def test_questions_only_ask(text: str) -> None:
    assert asks_only(text)


def test_what_i_plan_or_have_is_no_request_for_advice() -> None:
    assert asks_only("what do i plan with my job?")
    assert is_evidence("what do i wear to my sisters wedding in may?")


def test_long_turns_are_evidence() -> None:
    assert is_evidence("what " * 50)


def test_a_foreign_word_does_not_decide_the_language() -> None:
    assert is_evidence("my friend 何 moved to Leeds")
    assert not is_evidence("where does my friend 小明 live")


@pytest.mark.parametrize("text", ["मैं पुणे में रहता हूँ। तुम कहाँ हो?", "میں لاہور میں رہتا ہوں۔ تم کہاں ہو؟"])
def test_full_stops_of_hindi_and_urdu_end_a_sentence(text: str) -> None:
    assert len(split_sentences(text)) == 2
    assert len(sentences(text)) == 2
    assert is_evidence(text)


def test_a_turn_of_a_quotation_alone_is_read() -> None:
    assert is_evidence('"I moved to Porto."')


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Come at 7.30 a.m., ward 19. Eat nothing.", ["Come at 7.30 a.m., ward 19.", "Eat nothing."]),
        ("We left at 9 p.m. It rained.", ["We left at 9 p.m.", "It rained."]),
        ("Mail it to me@council.gov.uk. Thanks", ["Mail it to me@council.gov.uk.", "Thanks"]),
        ("Bring fruit, e.g. pears.", ["Bring fruit, e.g. pears."]),
        ("got the keys.its fine", ["got the keys.", "its fine"]),
        ("I take vitamin A. Also D.", ["I take vitamin A.", "Also D."]),
    ],
)
def test_no_sentence_ends_within_an_address_or_abbreviation(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences


@pytest.mark.parametrize(
    ("text", "has"),
    [
        ("paid the museum money", True),
        ("just lost my keys", True),
        ("milos teacher", False),
        ("lost property hours", False),
    ],
)
def test_what_somebody_did_is_a_verb_without_a_subject(text: str, *, has: bool) -> None:
    assert has_verb(text) is has


def test_mon_before_a_number_is_no_french() -> None:
    assert is_english("Accountant meeting: Mon 13 April 2pm")
    assert not is_english("mon chat dort")


def test_questions_and_courtesies_are_told_apart() -> None:
    assert asks_only("hi, whats my dog called")
    assert not asks_only("hi there")
    assert is_small_talk("hi there, thanks!")
    assert not is_small_talk("hi, whats my dog called")


CORRECTIONS = [
    "no wait, I meant the other one",
    "sorry, thursday not tuesday",
    "scrap that, it's the 14th",
    "typo, 42",
    "ah no, i meant my sister",
    "Make that eight.",
    "No, sorry, 120.",
    "No, I tell a lie, he was thirteen.",
    "i mean 120",
    "*120",
    "*Anna",
    "Actually it's Thursday.",
    "not tuesday, wednesday",
    "wrong: it's Anna",
    "sry friday",
    "Actually make that 14 fence panels, I measured it wrong.",
    "no make it 5 tins",
    "make that two sugars",
    "better make it 7 people",
    "nein warte, ich meinte Bello",
    "non attends, c'est jeudi",
    "perdón, quise decir el martes",
    "不对，我是说周四",
    "すみません、木曜日ではなくて金曜日です",
    "нет, подожди, я имел в виду сестру",
]
QUESTIONS_ABOUT_THE_PAST = [
    "where did I use to live",
    "what was the old price",
    "which flat were we in before we moved",
    "what was the plan originally",
    "Wo habe ich früher gewohnt?",
    "où est-ce que j'habitais avant",
    "我以前住在哪里？",
    "где я раньше жил?",
]


@pytest.mark.parametrize("text", CORRECTIONS)
def test_corrections_are_recognised(text: str) -> None:
    assert is_correction(text)


@pytest.mark.parametrize(
    "text",
    [
        "i live in porto and have a dog, not a cat",
        "nope, 4B",
        "Nope. Thanks!",
        "Nope. Nothing.",
        "Wrong. Sorry!",
        "Oh, the 5th.",
        "No, on Friday.",
        "i can't wait",
        "no its not ready",
        "sorry, I'm late",
        "actually I like it",
        "oops wrong window",
        "no sorry I can't come",
        "no, five is too many",
        "sorry, Anna",
        "*laughs*",
        "make that shorter",
        "make that a poem about cats",
        "make it 200 words",
        "make that two short paragraphs",
    ],
)
def test_statements_are_no_corrections(text: str) -> None:
    assert not is_correction(text)


@pytest.mark.parametrize("text", QUESTIONS_ABOUT_THE_PAST)
def test_questions_about_the_past_are_recognised(text: str) -> None:
    assert asks_about_past(text)


@pytest.mark.parametrize("text", ["where do i live now", "what was his last mark", "we used to live in porto"])
def test_other_turns_do_not_ask_about_the_past(text: str) -> None:
    assert not asks_about_past(text)


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("What name did you suggest?", True),
        ("what was the third one of those", True),
        ("Wie hieß dein Vorschlag?", True),
        ("Quel livre m'as-tu proposé ?", True),
        ("你推荐了哪家餐厅？", True),
        ("Where does my first dog live?", False),
        ("Wo wohnt meine Schwester?", False),
    ],
)
def test_questions_for_what_the_assistant_said_are_recognised(text: str, *, asks: bool) -> None:
    assert asks_about_replies(text) is asks


def test_repetition_adds_nothing() -> None:
    memory = "my bicycles are green, bought in 2019 in Porto"
    assert adds_nothing("Your bicycle is green; you bought it in Porto in 2019.", [memory])
    assert not adds_nothing("Your bicycle is green; you bought it in Porto in 2020.", [memory])
    assert not adds_nothing("My bicycle is not green.", [memory])
    assert not adds_nothing("Your bicycle is red and your daughter rides it to school.", [memory])
    assert adds_nothing("你住在红牌楼", ["我住在红牌楼三楼"])
    assert not adds_nothing("你住在青羊区", ["我住在红牌楼三楼"])


def test_a_reply_that_only_asks_back_is_told_from_one_that_answers() -> None:
    assert only_asks_back("Lovely! Is the new flat larger?")
    assert only_asks_back("Wo wohnst du jetzt?")
    assert not only_asks_back("The Blue Door on Rua do Sol. Shall I book?")
    assert not only_asks_back("Lovely!")
