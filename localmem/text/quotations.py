"""Quotations: by which words a reply is known to repeat what a unit says. Does not know where replies are kept."""

from collections.abc import Iterator

from localmem.retrieval.views import split_sentences
from localmem.text.clauses import CUT, split_clauses
from localmem.text.dialogue import without_speaker
from localmem.times.annotate import show_times
from localmem.types import Unit

_TELLING = 20  # characters of a sentence that nobody says by chance; a shorter one counts in quotation marks


def quotations(unit: Unit) -> list[str]:
    """The sentences of a unit and their clauses as a reply quotes them, with the dates that recall shows or without."""
    texts = [text for form in (unit.text, show_times(unit, unit.time.date())) for text in split_sentences(form)]
    texts = [without_speaker(text, unit.speaker).replace('"', "'") for text in texts]
    sentences = (text if len(text) >= _TELLING else f'"{text}' for text in texts)
    return list(dict.fromkeys([*sentences, *(quoted for text in texts for quoted in _quote_clauses(text))]))


def _quote_clauses(sentence: str) -> Iterator[str]:
    """How quotations begin that leave clauses out: from each clause as far as is telling, or as they are cut before."""
    clauses = split_clauses(sentence)
    for number, (begin, _) in enumerate(clauses if len(clauses) > 1 else ()):
        lead = f'"{CUT} ' if number else '"'
        for _, end in clauses[number:]:
            text = sentence[begin:end].rstrip(",;:")
            if len(text) >= _TELLING or end == clauses[-1][1]:
                yield f"{lead}{text}"
                break
            yield f"{lead}{text} {CUT}"
