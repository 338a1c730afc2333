"""Which turns are worth remembering: what a user tells, as opposed to questions, requests, courtesies and denials.

Decided by words alone, without a model, from the phrases of utterances.yaml. Every rule gives way where it cannot be
sure, because a question that is stored costs less than a fact that is lost. A text is cut into sentences and these into
clauses; it tells something as soon as one clause does. Lower case without punctuation or apostrophes is understood.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from itertools import filterfalse, pairwise
from pathlib import Path
from typing import NamedTuple

from localmem.files import read_yaml
from localmem.retrieval.bm25 import words as accented_words
from localmem.retrieval.languages import CODES, detect_language
from localmem.text.parse import words
from localmem.times.resolver import MONDAY

_WITHIN = (  # "7.30 a.m., ward 19", "e.g. tea", "me@council.gov.uk"
    r"(?<!\b[eE]\.g\.)(?<!\b[iI]\.e\.)(?!(?<=\b[AaPp]\.)[Mm]\b|(?<=\b[eE]\.)g\b|(?<=\b[iI]\.)e\b)"
    r"(?!(?<=\.)\s*[,;)])(?!(?<=\b[AaPp]\.[Mm]\.)\s+[a-z(])"
    r"(?!(?<=\w\.)(?:com|org|net|edu|gov|nhs|ac|co|uk|eu|io|example)\b)"
)
_SENTENCE_END = re.compile(
    rf"(?<=[.!?…。！？؟।॥۔])(?!\d)(?<!\d\.)(?<!\b(?:[Mm]r|[Mm]s|[Dd]r|St|Mt|Rs)\.)(?<!\b[Mm]rs\.)"
    rf"{_WITHIN}|(?<=\d\.)(?=\s)|\n+"
)
_CLAUSE_END = re.compile(r"[,;:，、；：()\[\]–—]+(?!\d)|\s-+\s|\s&\s")
_QUOTATION = re.compile(r"\"[^\"]*\"|“[^”]*”|«[^»]*»|„[^“”]*[“”]|「[^」]*」|『[^』]*』|```.*?```", re.DOTALL)
_MENTIONED = re.compile(r"(?<=\w )(['\"]).+?\1(?!\w)|(?<!\w)(['\"]).+?\2(?= \w)")  # may be of another language
_APOSTROPHE = re.compile(r"['’‘`´]")
_UNSPACED = frozenset({"zh", "ja", "ko"})
_SCRIPTS = {
    "ja": "[\u3040-\u30ff]",
    "zh": "[\u3400-\u9fff]",
    "ko": "[\uac00-\ud7af]",
    "ru": "[\u0400-\u04ff]",
    "ar": "[\u0600-\u06ff]",
}
_IDEOGRAMS = re.compile("[\u3040-\u30ff\u3400-\u9fff]")
_ENDING = re.compile(r"(?<=\w{3})(?:ings?|ies|e[dnrms]|[seynaoi])$")
_CORRECTS_NAME = re.compile(  # only a capital tells a name: "*Anna", "wrong: it's Anna"
    r"(?:\*\s?|(?i:wrong|oops|i mean)[\s,:-]+|(?i:(?:no|sorry|sry|actually|wrong|nope|oops)[\s,:.-]+it['’]?s\s))"
    r"(?i:it['’]?s\s)?(?!OK\b|I\b)[A-Z][\w'’-]+[.!]?"
)
_NEGATION = re.compile("no|not|never|nicht|nie|keine?|pas|jamais|nunca|non|mai|nao|niet|nooit|geen|не|нет")
_LONG, _LONG_CLAUSE = 220, 140  # characters: nobody asks or thanks at such length without telling something
_REMARK = 2  # words that tell nothing behind a question, if none is a verb
_SHORT_REQUEST = 10  # words: a number in a longer request is rather a fact than a length ("in 5 lines")


class _Clause(NamedTuple):
    text: str  # folded, without punctuation
    asks: bool  # ends with a question mark
    sentence: int
    is_first: bool = True  # of its sentence


class _Language:
    """The phrases of one language. Its patterns are compiled when they are needed: mostly those of one language are."""

    def __init__(self, name: str, phrases: dict[str, str]) -> None:
        self.name = name
        fields = {field: _strip_accents(text).replace(" | ", "|") for field, text in phrases.items()}
        self.unspaced = name in _UNSPACED
        self.common = frozenset(fields.get("common", "").split())
        begin, before, after = ("", "", "") if self.unspaced else ("^", r"(?<!\w)", r"(?!\w)")

        def alternatives(field: str) -> str:
            return f"(?:{fields.get(field) or '(?!)'})"  # the latter matches nothing

        ask, inversion = alternatives("ask"), f"{alternatives('invert')} {alternatives('subject')}"
        wrap, lead, tell = alternatives("wrap"), alternatives("lead"), alternatives("tell")
        wrapped = rf"{before}{wrap}(?: \w+){{0,2}} {ask}|^{lead}(?: (?!{tell}{after})\w+){{1,6}}? {ask}"
        self._patterns = {
            "courtesy": rf"(?:{alternatives('courtesy')}{after}\s*)+",
            "small_talk": rf"(?:(?:{alternatives('courtesy')}|{alternatives('alone')}){after}\s*)+",
            "asks": f"{begin}(?:{ask}|{inversion}){after}",
            "wraps": f"(?:{wrapped}){after}",
            "ask": ask,
            "word": "|".join(map(alternatives, ("ask", "courtesy", "request"))),
        }
        slips, value = f"(?:{alternatives('slip')} )+", alternatives("value")
        self._patterns["yes_or_no"] = rf"{begin}{alternatives('invert')}{after}"
        self._patterns["corrects_value"] = f"^(?:{slips}{value}|not {value} {value})$"
        self._patterns["general"] = f"{begin}(?:{alternatives('lookup')}|{alternatives('compose')}){after}"
        for field in ("advice", "request", "offer", "correction", "inform", "event", "relative", "lookup", "to_me"):
            self._patterns[field] = begin + alternatives(field) + after
        for field in ("recall", "mine", "tell", "denial", "answer", "past", "replies", "self"):
            self._patterns[field] = before + alternatives(field) + after

    def __getattr__(self, name: str) -> re.Pattern[str]:
        if name not in self.__dict__.get("_patterns", ()):
            raise AttributeError(name)
        pattern = self.__dict__[name] = re.compile(self._patterns[name])
        return pattern

    def knows(self, word: str) -> bool:
        """Whether a word is a frequent one of this language, or a question word or courtesy of it."""
        return word in self.common or self.word.fullmatch(word) is not None

    def is_courtesy(self, clause: str) -> bool:
        """Whether a clause is a greeting, thanks or an acknowledgement and no more."""
        return self.small_talk.fullmatch(clause) is not None

    def is_question(self, clause: _Clause) -> bool:
        """Whether a clause asks something, with or without a question mark."""
        statement = self.without_courtesy(clause.text)
        if self.inform.search(statement):
            return clause.asks
        if not (clause.is_first or clause.asks) and self.relative.search(statement):
            return False
        return clause.asks or any(pattern.search(statement) for pattern in (self.asks, self.recall, self.wraps))

    def tells(self, clause: _Clause, beside: bool) -> bool:
        """Whether a clause tells something; `beside` says that another clause of its sentence is a question."""
        statement = self.without_courtesy(clause.text)
        if self.is_courtesy(clause.text) or len(statement) > _LONG_CLAUSE:
            return len(statement) > _LONG_CLAUSE
        if self.is_question(clause):
            return self._asks_with_facts(statement)
        if self.request.search(statement):
            remainder = self.request.sub("", statement, count=1)
            number = len(statement.split()) > _SHORT_REQUEST and any(map(str.isdigit, statement))
            return number or self.mine.search(remainder) is not None
        is_phrase = (" " in statement or self.unspaced) and not any(map(str.isdigit, statement))
        return not (beside and is_phrase) or self.tell.search(statement) is not None  # "for the form, what is ..."

    def _asks_with_facts(self, statement: str) -> bool:
        """Whether a question holds facts: by its form, as one for advice that names what is the user's, or a number."""
        if self.inform.search(statement):
            return True
        if self.recall.search(statement):
            return False
        number = any(map(str.isdigit, statement))
        if opening := self.yes_or_no.match(statement):  # "is flat 4 let?", but not "does my 14 year old need one?"
            number = number and self.mine.search(statement, opening.end()) is not None
        if self.advice.search(statement):
            return number or self.mine.search(self.advice.sub("", statement, count=1)) is not None
        return number and not self.asks.search(statement) and self.tell.search(statement) is not None

    def asks_advice(self, clause: _Clause) -> bool:
        """Whether a clause opens as a question for advice."""
        return self.advice.search(self.without_courtesy(clause.text)) is not None

    def is_remark(self, clause: str) -> bool:
        """Whether a clause is one word or two, without a verb, a negation and a number."""
        parts = clause.split()
        has_fact = any(_NEGATION.fullmatch(part) or any(map(str.isdigit, part)) for part in parts)
        return len(parts) <= _REMARK and not (self.unspaced or has_fact or self.tell.search(clause))

    def without_courtesy(self, clause: str) -> str:
        """A clause without the courtesies that open it."""
        opening = self.courtesy.fullmatch(clause) or self.courtesy.match(clause)
        return clause[opening.end() :] if opening else clause


def is_evidence(text: str) -> bool:
    """Whether a user's turn tells anything: about the user, their people, plans and likes, or data within a request."""
    clauses, language = _clauses(text), _language(text)
    if len(text) > _LONG:
        return True
    asking = {clause.sentence for clause in clauses if language.is_question(clause)}
    return any(
        language.tells(clause, clause.sentence in asking) and not _is_form(language, clause, clauses)
        for clause in clauses
    )


def _is_form(language: _Language, clause: _Clause, clauses: Sequence[_Clause]) -> bool:
    """Whether a clause is a sentence of a word or two that only says how a question is to be answered: "JSON.".

    Behind a courtesy and a question for advice it tells something, and so do a negation and a number: "No nuts."
    """
    before = [each for each in clauses if each.sentence == clause.sentence - 1]
    if not before or not before[-1].asks or sum(each.sentence == clause.sentence for each in clauses) > 1:
        return False
    is_plain = not (language.is_courtesy(before[-1].text) or any(map(language.asks_advice, before)))
    return is_plain and language.is_remark(clause.text)


def asks_only(text: str) -> bool:
    """Whether a turn asks something and tells nothing."""
    language = _language(text)
    return any(language.is_question(clause) for clause in _clauses(text)) and not is_evidence(text)


def is_small_talk(text: str) -> bool:
    """Whether a turn is nothing but greetings, thanks, goodbyes and acknowledgements."""
    language = _language(text)
    return all(language.is_courtesy(clause.text) for clause in _clauses(text))


def only_asks_back(reply: str) -> bool:
    """Whether a reply is nothing but questions and courtesies: "Lovely! Is the new flat larger?"."""
    language = _language(reply)
    sentences = _sentences(reply)
    asks = [sentence.rstrip().endswith(("?", "？")) for sentence in sentences]
    return any(asks) and all(
        ask or language.is_courtesy(_fold(sentence)) for ask, sentence in zip(asks, sentences, strict=True)
    )


def is_denial(text: str) -> bool:
    """Whether a reply only says that it does not know or was not told; it may add an offer, but no answer."""
    language = _language(text)
    denied = False
    for sentence in _sentences(text):
        folded = _fold(sentence)
        if denial := language.denial.search(folded):
            denied = True
            if language.answer.search(folded, denial.start()):
                return False
        elif not (_is_marked(sentence) or language.offer.search(folded) or language.is_courtesy(folded)):
            return False
    return denied


def is_correction(text: str) -> bool:
    """Whether a short turn begins by correcting what was just said, or gives another value or name and no more."""
    language = _language(text)
    sentences = [_fold(sentence) for sentence in _sentences(text)]
    openings = [form for sentence in sentences[:2] for form in (sentence, language.without_courtesy(sentence))]
    correction = _fold(f"wrong {text}" if text.strip().startswith("*") else text)
    corrects_whole = language.corrects_value.search(correction) or _CORRECTS_NAME.fullmatch(text.strip())
    return len(text) <= _LONG and (corrects_whole is not None or any(map(language.correction.search, openings)))


def asks_about_past(text: str) -> bool:
    """Whether a question asks for what was before, not for what is so now."""
    language = _language(text)
    asks = any(language.is_question(clause) for clause in _clauses(text))
    return asks and language.past.search(_fold(text)) is not None


def asks_about_replies(text: str) -> bool:
    """Whether a question may be for what the assistant said: it addresses it, or names a place in a list."""
    return _language(text).replies.search(_fold(text)) is not None


def has_verb(text: str) -> bool:
    """Whether a text has a frequent verb, or a pronoun as its subject, or opens with what somebody did."""
    language, folded = _language(text), _fold(text)
    return any(pattern.search(folded) for pattern in (language.tell, language.event))


def is_english(text: str) -> bool:
    """Whether a text is English, as one whose words belong to no known language is taken to be."""
    return _language(text) is _languages()["en"]


def language_of(text: str) -> str:
    """The language of a turn, as an ISO 639-1 code: English where nothing decides."""
    return _language(text).name


def speaks_of_self(text: str) -> bool:
    """Whether a turn names the user: "my", "I"; of English it is not known."""
    return _language(text).self.search(_fold(text)) is not None


def opens_request(text: str) -> bool:
    """Whether a turn begins by telling the assistant to do something: "explain to me what ..."."""
    language, clauses = _language(text), _clauses(text)
    return bool(clauses) and language.request.search(language.without_courtesy(clauses[0].text)) is not None


def needs_no_memory(text: str) -> bool:
    """Whether a turn asks for a sum, a translation, a poem about no one and the like; of English it is not known."""
    language = _language(text)
    statement = " ".join(filter(None, (language.without_courtesy(clause.text) for clause in _clauses(text))))
    is_named = language.name != "de" and any(word[0].isupper() for word in re.findall(r"(?<=\w\s)\w+", text))
    is_general = (language.lookup if is_named else language.general).search(statement) is not None
    about, personal = language.to_me.sub("", statement, count=1), ("self", "recall", "past", "replies")
    return is_general and not any(getattr(language, field).search(about) for field in personal)


def without_frequent_words(text: str) -> str:
    """The words of a text, folded, that are not frequent, and no question words nor courtesies."""
    language = _language(text)
    if language.unspaced:
        return "".join(letter if letter not in language.common else " " for letter in language.word.sub(" ", text))
    return " ".join(word for word in _fold(text).split() if not language.knows(word))


def describe_asking(text: str) -> dict[str, float]:
    """How a turn asks: whether it asks only, and for advice; its length, its clauses and the share of those that ask.

    Empty for a turn that asks nothing.
    """
    language, clauses = _language(text), _clauses(text)
    asking = [clause for clause in clauses if language.is_question(clause)]
    if not asking:
        return {}
    return {
        "asks_only": float(not is_evidence(text)),
        "long": min(len(text), 400) / 100,
        "clauses": min(len(clauses), 8) / 4,
        "share": len(asking) / len(clauses),
        "advice": float(any(map(language.asks_advice, asking))),
    }


def split_sentences(text: str) -> list[str]:
    """A text's sentences, without pieces that hold no letter and no digit."""
    return [piece.strip() for piece in _sentences(text)]


def adds_nothing(text: str, earlier: Sequence[str]) -> bool:
    """Whether nearly all that a text names occurs in the earlier texts: one word in five may be new, but no number."""
    earlier_units = set[str]().union(*map(_units, earlier))
    units = _units(text)
    new = [unit for unit in units if unit not in earlier_units]
    return 5 * len(new) <= len(units) and not any(any(map(str.isdigit, unit)) for unit in new)


@lru_cache(maxsize=4096)  # a question is compared with many texts, and these with many questions
def _units(text: str) -> tuple[str, ...]:
    """The stems of a text's words that carry content, and its pairs of unspaced characters."""
    return tuple(_read_units(text))


def _read_units(text: str) -> Iterator[str]:
    language = _language(text)
    for word in words(_IDEOGRAMS.sub(" ", text)):
        plain = len(word) == 1 or word in language.common or language.ask.fullmatch(word) is not None
        if word.isdigit() or _NEGATION.fullmatch(word) or not plain:
            yield _ENDING.sub("", word)
    characters = [letter for letter in _IDEOGRAMS.findall(text) if letter not in language.common]
    yield from map("".join, pairwise(characters))


@lru_cache(maxsize=4096)  # several questions are asked of each turn
def _clauses(text: str) -> Sequence[_Clause]:
    """A text's clauses in order; the last of a sentence with a question mark asks. A quotation within is left out."""
    clauses: list[_Clause] = []
    for number, sentence in enumerate(_sentences(_QUOTATION.sub(" ", text)) or _sentences(text)):
        pieces = [piece for part in _CLAUSE_END.split(sentence) if (piece := _fold(part))]
        last = len(pieces) - 1
        clauses += [
            _Clause(piece, at == last and _is_marked(sentence), number, at == 0) for at, piece in enumerate(pieces)
        ]
    return tuple(clauses)


def _sentences(text: str) -> list[str]:
    return [piece for piece in _SENTENCE_END.split(text) if any(map(str.isalnum, piece))]


def _is_marked(sentence: str) -> bool:
    return sentence.rstrip().endswith(("?", "？", "؟"))


def _fold(text: str) -> str:
    """Lower case, without accents, apostrophes and punctuation, with single spaces."""
    bare = _strip_accents(_APOSTROPHE.sub("", text.casefold()))
    return " ".join(re.findall(r"\w+(?:[.,:]\d+)*", bare))


def _strip_accents(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text.replace("ł", "l"))
    return unicodedata.normalize("NFC", "".join(filterfalse(unicodedata.combining, plain)))


@lru_cache(maxsize=4096)
def _language(text: str) -> _Language:
    """The language of a text by its script, then by its frequent words; English where nothing decides."""
    languages = _languages()
    for name, script in () if text.isascii() else _SCRIPTS.items():
        if 4 * len(re.findall(script, text)) > len(text):
            return languages[name]
    own = _MENTIONED.sub(" ", text)
    folded, likely = _fold(own), CODES.get(detect_language(own, accented_words(own)) or "")
    known = Counter(name for word in MONDAY.sub("", folded).split() for name in _languages_of(word))

    def fit(name: str) -> tuple[bool, bool, int]:
        opens = not likely and languages[name].general.search(folded) is not None
        return languages[name].is_courtesy(folded) or opens, name == likely, known[name]

    return languages[max(_spaced_languages(), key=fit)]


@lru_cache(maxsize=16_384)
def _languages_of(word: str) -> tuple[str, ...]:
    """The names of the languages that know a word."""
    return tuple(name for name in _spaced_languages() if _languages()[name].knows(word))


def _spaced_languages() -> list[str]:
    return [name for name in _languages() if name not in _SCRIPTS]


@cache
def _languages() -> dict[str, _Language]:
    table = read_yaml(Path(__file__).with_suffix(".yaml"))
    return {name: _Language(name, phrases) for name, phrases in table.items() if isinstance(phrases, dict)}
