"""How many tokens a text is taken to have, and where a long one is cut."""

import pytest

from localmem.text.passages import PASSAGE, estimate_tokens, split_passages

# As counted by the tokenizer of smollm2-135m-instruct.
COUNTED = {
    "22 April 2025: User: Callum got it, by the way. Starts 1st September (1 September 2025), £13,900 a year.": 45,
    "6 May 2025: User: That'll do. Judge is Ralph Dinsdale this year (2025). He marked me down in ninety-four.": 37,
    "The rent is 1,480 for two bedrooms on Pembina Highway, and the landlord will raise it in April (April 2025).": 34,
}


@pytest.mark.parametrize(("text", "tokens"), COUNTED.items())
def test_the_estimate_is_near_the_count_and_not_below_it(text: str, tokens: int) -> None:
    assert tokens <= estimate_tokens(text) <= 1.15 * tokens


def test_a_long_word_has_several_tokens_and_a_wide_sign_has_one() -> None:
    assert estimate_tokens("Straßenbahnhaltestelle") >= 6
    assert estimate_tokens("我住在里昂") == 5


def test_a_long_text_is_cut_where_a_sentence_ends() -> None:
    text = "I moved to Lyon in May. " * 100
    passages = split_passages(text)
    assert " ".join(passages) == text.strip()
    assert all(len(passage) <= PASSAGE and passage.endswith("May.") for passage in passages)
