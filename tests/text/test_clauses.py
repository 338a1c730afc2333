"""Where a sentence can be cut into clauses."""

import pytest

from localmem.text.clauses import join_lists, split_clauses


@pytest.mark.parametrize(
    ("sentence", "clauses"),
    [
        (
            "My desk is 3B no sorry 4B near the pantry, dangerous.",
            "My desk is 3B|no sorry 4B near the pantry,|dangerous.",
        ),
        ("hotel is 240 and flight 310 so what remains", "hotel is 240|and flight 310|so what remains"),
        (
            "Not the 6th (6 May 2025) but the 20th (20 May 2025).",
            "Not the 6th (6 May 2025)|but the 20th (20 May 2025).",
        ),
        ("Rent is 1,450 - heat not in it", "Rent is 1,450 -|heat|not in it"),
        ("Met Ann (who sings, and dances) there.", "Met Ann (who sings, and dances)|there."),
        ("and", "and"),
        ("", ""),
    ],
)
def test_a_sentence_is_cut_behind_punctuation_and_before_joining_words(sentence: str, clauses: str) -> None:
    assert "|".join(sentence[start:end] for start, end in split_clauses(sentence)) == clauses


@pytest.mark.parametrize(
    ("sentence", "clauses"),
    [
        (
            "Practice is Monday (17 March 2025) and Thursday (20 March 2025).",
            "Practice is Monday (17 March 2025) and Thursday (20 March 2025).",
        ),
        ("Not Rex, Bruno, and he is old.", "Not Rex,|Bruno,|and he is old."),
        ("Tea or coffee, no milk, or a juice.", "Tea or coffee,|no milk,|or a juice."),
        ("", ""),
    ],
)
def test_the_last_of_a_list_stays_with_those_before_it(sentence: str, clauses: str) -> None:
    joined = join_lists(sentence, split_clauses(sentence))
    assert "|".join(sentence[start:end] for start, end in joined) == clauses
