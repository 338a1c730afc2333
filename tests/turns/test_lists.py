"""Lists: where the items end, and which one a question names."""

import pytest

from localmem.turns.lists import LAST, MIDDLE, find_enumerated, named_item, place_in, split_items


@pytest.mark.parametrize(
    ("text", "items"),
    [
        (
            "Try: 1. Low Tide, 2. Wet Chips, 3. Ballast. Ballast suits you.",
            ["1. Low Tide", "2. Wet Chips", "3. Ballast."],
        ),
        ("Here:\n1) The ring, with benches\n2) The boat.\nRest well.", ["1) The ring, with benches", "2) The boat."]),
        ("See 1. below. Names: 1. Rex. 2. Max.", ["1. Rex.", "2. Max."]),
    ],
)
def test_the_items_of_a_list_are_numbered_and_what_is_around_it_is_not(text: str, items: list[str]) -> None:
    pieces = split_items(text)
    assert [piece for number, piece in pieces if number] == items
    assert [number for number, _ in pieces if number] == list(range(1, len(items) + 1))
    assert {number for number, _ in pieces} == set(range(len(items) + 1))


@pytest.mark.parametrize(
    "text", ["I was 1. The rest came on the 5. of May.", "1. only", "", "On 3 February 2025. 2. of 7"]
)
def test_what_does_not_count_up_is_no_list(text: str) -> None:
    assert {number for number, _ in split_items(text)} <= {0}


@pytest.mark.parametrize(
    ("question", "number"),
    [
        ("What was the third place?", 3),
        ("the 2nd one you gave me", 2),
        ("Number four, what was it?", 4),
        ("item no. 12?", 12),
        ("What was the last of them?", LAST),
        ("One before the last of your titles?", LAST - 1),
        ("which was the last but one", LAST - 1),
        ("the number before last of your ideas", LAST - 1),
        ("your second to last tip", LAST - 1),
        ("what was the middle one", MIDDLE),
        ("What is Ana's middle name?", None),
        ("What did you say in the middle of May?", None),
        ("what did we do the week before last", None),
        ("What was your final tip?", LAST),
        ("And the final one?", LAST),
        ("What was the last number you gave?", LAST),
        ("What did you suggest?", None),
        ("What exercises did you suggest last week?", None),
        ("What did you say in the last two weeks?", None),
        ("What were the last two tips?", LAST),
        ("What did you say last Monday about the bread?", None),
        ("What did you suggest about the final exam?", None),
    ],
)
def test_a_question_names_an_item_by_its_place(question: str, number: int | None) -> None:
    assert named_item(question) == number


@pytest.mark.parametrize(
    ("count", "number", "place"),
    [
        (3, 2, 2),
        (3, 4, 0),
        (3, LAST, 3),
        (3, LAST - 1, 2),
        (1, LAST - 1, 0),
        (3, MIDDLE, 2),
        (5, MIDDLE, 3),
        (4, MIDDLE, 0),
    ],
)
def test_an_item_has_a_place_from_the_beginning(count: int, number: int, place: int) -> None:
    assert place_in(count, number) == place


NAMES = "Name options: Pitstop, Loodsen, and Go Now."


@pytest.mark.parametrize(
    ("question", "sentence", "item"),
    [
        ("what was the second name you gave", NAMES, "Loodsen"),
        ("and the last?", NAMES, "Go Now"),
        ("and the middle one?", NAMES, "Loodsen"),
        ("and the last but one?", NAMES, "Loodsen"),
        ("what was the fourth name", NAMES, ""),
        ("which name did you give", NAMES, ""),
        ("what was the second hymn", "'Abide With Me' is made for it, and 'Ukuthula' for comfort.", "'Ukuthula'"),
        (
            "what was your second trick",
            "Three tricks: set the timer, ask before they sit, and talk less.",
            "ask before they sit",
        ),
        ("who had Monday on the first rota", "House rota: Mon Maz bins, Tue Poppy kitchen, Wed you.", ""),
        ("what was the second thing", "It's a test: yes.", ""),
        ("what was the second thing", "I don't like Ana's or Ben's.", ""),
    ],
)
def test_of_what_a_sentence_lists_the_named_item_is_given(question: str, sentence: str, item: str) -> None:
    assert find_enumerated(question, sentence) == item
