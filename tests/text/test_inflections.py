"""Forms of one word, and words that only begin alike."""

import pytest

from localmem.text.inflections import is_inflection
from localmem.text.parse import fold

FORMS = """
    therapy therapies|boat boats|boss bosses|plan planned|plan planning|change changing|cancel cancelled|movie movies|
    Wohnung Wohnungen|Bruder Brüdern|hermano hermanas|sorella sorelle|работа работой|주소 주소는|job job
"""


@pytest.mark.parametrize("pair", FORMS.split("|"))
def test_forms_of_one_word(pair: str) -> None:
    word, other = map(fold, pair.split())
    assert is_inflection(word, other)
    assert is_inflection(other, word)


ALIKE = """
    therapy there|thesis these|theresa there|partner party|partner part|party part|cancer cancelled|salary salad|
    willow will|everett every|flower flow|pasta past|paula paul|партнер партия|car cat
"""


@pytest.mark.parametrize("pair", ALIKE.split("|"))
def test_words_that_begin_alike(pair: str) -> None:
    word, other = map(fold, pair.split())
    assert not is_inflection(word, other)
    assert not is_inflection(other, word)
