"""Where a sentence can be cut into clauses."""

import pytest

from localmem.text.clauses import join_clauses, split_clauses


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
        ("It is on Thursday (6 March 2025) at 3.", "It is on Thursday (6 March 2025) at 3."),
        ("Not Rex, Bruno, and he is old.", "Not Rex,|Bruno,|and he is old."),
        ("Tea or coffee, no milk, or a juice.", "Tea or coffee,|no milk,|or a juice."),
        ("Ann's list: eggs, rice, hot sauce and tea, he said", "Ann's list: eggs, rice, hot sauce and tea, he said"),
        ("We need eggs, rice, hot sauce, so I am off to York", "We need eggs, rice, hot sauce,|so I am off to York"),
        ("I want to sing, he is from York.", "I want to sing,|he is from York."),
        ("We moved from Leeds to York.", "We moved from Leeds|to York."),
        ("The pills before dinner, not after.", "The pills|before dinner, not after."),
        ("It was 12 before, while not tea but rum now.", "It was 12 before,|while not tea|but rum now."),
        ("", ""),
    ],
)
def test_what_says_nothing_by_itself_stays_with_a_clause_beside_it(sentence: str, clauses: str) -> None:
    joined = join_clauses(sentence, split_clauses(sentence))
    assert "|".join(sentence[start:end] for start, end in joined) == clauses
