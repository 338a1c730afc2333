"""Quotations: by which words a reply is known to repeat what a unit says. Does not know where replies are kept."""

from localmem.retrieval.views import split_sentences
from localmem.text.dialogue import without_speaker
from localmem.times.annotate import show_times
from localmem.types import Unit

_TELLING = 20  # characters of a sentence that nobody says by chance; a shorter one counts in quotation marks


def quotations(unit: Unit) -> list[str]:
    """The sentences of a unit as a reply quotes them, with the dates that a recall shows or without."""
    texts = [text for form in (unit.text, show_times(unit, unit.time.date())) for text in split_sentences(form)]
    texts = [without_speaker(text, unit.speaker).replace('"', "'") for text in texts]
    return list(dict.fromkeys(text if len(text) >= _TELLING else f'"{text}' for text in texts))
