"""Requests to forget in other languages than English, by the patterns of foreign_forget_requests.yaml.

The verb must open a clause, for elsewhere it mostly tells who forgets what ("ma mère oublie mon nom"). "What I said"
and "that" are enough; "my address" or "the code" only where it is all that the message says, or where it is polite. A
sentence or a paragraph belongs to a text that is being written. Does not know what is remembered.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from localmem.files import read_yaml

_I = re.IGNORECASE
_PLEASE = (
    r"(?:s['’]?il (?:te|vous) pla[iî]t|stp|svp|bitte|por favor|porfa|per favore|alsjeblieft|пожалуйста|proszę"
    r"|peux[- ]tu|tu peux|pourrais[- ]tu|tu pourrais|pouvez[- ]vous|pourriez[- ]vous|veuillez|puedes|podrías?|puoi"
    r"|potresti|pode|podes|poderia)"
)
_LEAD = (
    rf"(?:^\W*|[.!?…;,:)\n–—]\s*|\b(?:{_PLEASE}|ok|okay|alors|donc|mais|oui|und|aber|also|dann|ja|pero|entonces|sí|ma"
    r"|allora|quindi|mas|então|maar|dus|en|тогда|и|а|но|ale|więc),?\s+)"
)
_CHINESE_OPENING = r"(?:^|[，。！？；、,.!?;\n\s…])(?:那|那就|还是)?(?:请|麻烦|能不能|可不可以|可以|帮我|你|您|就|快)*"
_POSSESSIVE = (
    r"(?:mon|ma|mes|notre|nos|mein\w*|unser\w*|mis?|nuestr[oa]s?|(?:il |la |i |le )?(?:mi[oa]|miei|mie|nostr[oaie])"
    r"|(?:o |a |os |as )?(?:meus?|minhas?|noss[oa]s?)|mijn|ons|onze|мо[йюёяи]|мои[хм]?|наш\w*|mój|moją|moj[ea]"
    r"|moje[jg]o?|moim|nasz\w*)"
)
_THAT = r"(?:cette?|dies\w*|es[ae]|quel\w*|quest[oa]|aquel[ae]|ess[ae]|dat|этот?|эту|ten|tę)"
_ARTICLE = rf"(?:le|la|les|l['’]|das|die|den|el|los|las|il|lo|i|gli|o|a|os|as|het|de|{_THAT})"
_DATUM = (
    r"(?:num[eé]ro|número|nummer|numer|номер|code|pin|c[oó]d(?:igo|ice)|код|kod|mot de passe|passw\w+|wachtwoord"
    r"|contraseña|senha|parola|пароль|hasło|adress?e?|direcci[oó]n|indirizzo|endereço|адрес|montant|somme|betrag|summe"
    r"|bedrag|importe|importo|valor|сумму|kwotę|salaire|gehalt|salario|stipendio|salário|зарплату|nom|name|nombre|nome"
    r"|naam|имя)"
)
_OWN = rf"(?P<own>(?:{_POSSESSIVE}|{_ARTICLE})\b[^.!?\n…]*)"
_DETERMINER = re.compile(rf"^\W*(?:{_POSSESSIVE}|{_ARTICLE}|내|제|우리)\s+", _I)
_OF_MINE = rf"{_POSSESSIVE}(?: [\w'’-]+){{1,4}}"
_ALONE = re.compile(
    rf"\W*(?:{_OF_MINE}|{_ARTICLE} ?(?:[\w-]+ )?{_DATUM}(?: (?:de|di|del|von|van|da|do) {_OF_MINE})?)\W*", _I
)
_THAT_DATUM = re.compile(rf"{_THAT} {_DATUM}\W*{_PLEASE}?\W*", _I)
_PART_OF_TEXT = re.compile(
    r"\b(?:phrases?|paragraph\w*|absatz|absätze|satz|sätze|frases?|párrafos?|paragraf[oi]|parágrafos?|zin|zinnen|alinea"
    r"|абзац\w*|предложени\w*|zdani\w*|akapit\w*|titres?|titel|títulos?|titolo|заголов\w*|mots?|palabras?|instru[cçk]\w*"
    r"|istruzion\w*|anweisung\w*|consignes?|questions?|fragen?|preguntas?|domand[ae]|perguntas?|vraag|вопрос\w*)\b",
    _I,
)
_DELETES = re.compile(r"\b(?:apagu?[ae]|сотри|удали|usuń|wykasuj)", _I)
_OF_MEMORY = re.compile(r"memória|памяти|pamięci", _I)
_ABOUT = re.compile(
    r"\b(?:sur|über|sobre|de(?= (?:mis?|nuestr\w+) )|sul\w*|del(?:l\w*)?|dei|over|про|об?)\s+(?P<topic>\w.*)", _I
)


def find_foreign_requests(text: str) -> Iterator[re.Match[str]]:
    """The commands to forget, the first of each pattern."""
    for commands, figure in _languages():
        requests = [request for command in commands if (request := command.search(text))]
        if requests and not figure.search(text):
            yield from (request for request in requests if _is_meant(text, request))


def name_foreign(request: re.Match[str]) -> str:
    """What a request names beyond "that" and "what I said": the boss of "what I said about my boss"."""
    name = request.groupdict().get("own") or ""
    if not name:
        after = re.split("[.!?…\n]", request.string[request.end() :], maxsplit=1)[0]
        about = _ABOUT.search(after)
        name = about["topic"] if about else ""
    return "" if _THAT_DATUM.fullmatch(name) else _DETERMINER.sub("", name)


def _is_meant(text: str, request: re.Match[str]) -> bool:
    own = request.groupdict().get("own")
    if not own or own >= "\u3040":  # a language that writes no spaces has a form of its own for requests
        return True
    if _PART_OF_TEXT.search(own) or (_DELETES.search(request[0]) and not _OF_MEMORY.search(own)):
        return False
    start = max(text.rfind(mark, 0, request.start() + 1) for mark in ".!?\n") + 1
    alone = not text[: request.start()].strip() and not text[request.end() :].strip(" .!…")
    polite = re.search(rf"\b{_PLEASE}\b", text[start : request.end()], _I)
    return bool(polite or (alone and _ALONE.fullmatch(own)))


@cache
def _languages() -> list[tuple[list[re.Pattern[str]], re.Pattern[str]]]:
    """The commands of each language, and its figures of speech."""
    parts = {"LEAD": _LEAD, "OWN": _OWN, "OPENING": _CHINESE_OPENING}
    return [
        (
            [re.compile(_fill(each, parts), _I) for each in phrases["request"]],
            re.compile("|".join(phrases["figure"]), _I),
        )
        for phrases in read_yaml(Path(__file__).with_suffix(".yaml")).values()
        if isinstance(phrases, dict)
    ]


def _fill(pattern: str, parts: Mapping[str, str]) -> str:
    return re.sub("|".join(parts), lambda name: parts[name[0]], pattern)
