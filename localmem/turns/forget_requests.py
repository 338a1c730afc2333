"""Recognises a person's request to forget something they said. Words only, no model.

"Forget" is mostly a figure of speech ("forget it, let's talk about the trip", "I forgot my keys", "forget the diet"),
and "delete that" mostly means a text that is being written. So a command must begin a clause, and what it names
must be something that was said: "what I told you", "that number", or with a reason ("I don't want it written down").
What is quoted, and what a code block holds, is no request. Does not know what is remembered.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from localmem.text.parse import words
from localmem.turns.foreign_forget_requests import find_foreign_requests, may_be_foreign, name_foreign
from localmem.turns.forget_topics import NO_TOPIC, find_topic
from localmem.turns.remarks import find_statement

Target = Literal["message", "recent", "earlier", "everything", "unclear"]


@dataclass(frozen=True, slots=True)
class ForgetRequest:
    """What a person wants forgotten.

    `topic` holds the words (folded) that say what it is about, if any do, `around` those of the whole message.
    `target`: what the same `message` says, what was just said, something said at any time (`earlier`), everything, or
    nothing that the words tell. `own` is what the same message says, where that is meant, and `is_bare` whether the
    request says no more than "that" or "what I said".
    """

    topic: tuple[str, ...]
    target: Target
    own: str = ""
    is_bare: bool = False
    around: tuple[str, ...] = ()


_LONGEST = 4000  # characters
_HINT_TEXT = """
    forget remember erase delete remove wipe bin scrap drop lose scratch strike clear purge keep store save record memor
    rid pretend
"""
_HINTS = (*_HINT_TEXT.split(), "take out")  # most messages hold none of them, and all are read
_I = re.IGNORECASE
_LEAD = (
    r"(?:(?:^|[.!?…;,)\n–—]|\s-)\s*|\b(?:and|so|but|no|also|now|then|actually|listen|hey|ok|okay|oh|yes|sorry"
    r"|please|pls"
    r"|plz|kindly|just|abeg|better|ag|no wait)\s+)"
)
_ASK = (
    r"(?:(?:please|pls|plz|kindly|just|abeg|do|could|can|will|would|should|might|u|you|we|ya|i(?:['’]d| would| want|"
    r" need)?(?: like)?(?: you| u) to|i need you to|better|actually|maybe|now|then|also|so|and|let['’]?s)\s+){0,5}"
)
_POLITE = r"\b(?:please|pls|plz|kindly|abeg|s'?il te pla[iî]t|stp|bitte|por favor|per favore|alsjeblieft)\b"
_SAID = r"(?:told|said|say|wrote|typed|mentioned|shared|sent|gave|put|posted|texted|dictated|confided)"
_WHAT_I_SAID = (
    rf"(?:(?:what|that|everything|all|anything|whatever|the (?:thing|bit|part|stuff|stuff that)|things?|stuff"
    rf"|which)\s+)?"
    rf"(?:that\s+)?i(?:['’]ve|\s+have|\s+had)?(?:\s+(?:just|ever|once|already|even))?\s+{_SAID}\b"
)
_DATUM = (
    r"(?:password|passcode|passphrase|pass|pin|code|combination|number|digits|figure|amount|sum|price|salary"
    r"|income|rent"
    r"|weight|score|mark|grade|result|reading|diagnosis|address|phone|e-?mail|name|surname|date|birthday|secret"
    r"|confession|interview|conversation|story|detail|details|remark|comment|message|account|card|dose"
    r"|medication|meds?|information|info|data|history|record)s?"
)
_NAMED_DATUM = rf"(?:about )?(?:the|that|this|my|his|her|their|our|those|all)\s+(?:\w+['’]?s?\s+){{0,4}}{_DATUM}\b"
_OF_MY = r"\s+(?:of|for)\s+(?:my|our)\b"
_MINE = rf"(?:about )?(?:the (?!rest\b)(?:[\w-]+ ){{0,3}}[\w-]+{_OF_MY}|my|our)(?: [\w'’-]+){{1,4}}"
_MY_DATUM = (
    r"(?:my|our) (?:[\w-]+ )?(?:address|phone|password|passcode|pin|salary|income|name|surname|birthday|diagnosis"
    r"|date of birth|(?:pin|phone|account|card|id) (?:number|code)|number)s?(?:,? (?:please|pls|plz|for me))*\W*"
)
_HOME = r"(?:about )?where (?:i|we) (?:live|work)(?:,? (?:please|pls|plz))?"
_NO_NAME = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day|january|february|march|april|june|july|august|\w+(?:em|to)ber"
_I_WANT = r"\bi(?:['’]d like| would like| want| need) (?:you|u) to\b"
_THING = r"(?:about )?(?:the|that|this) (?:\w+ )?(?:thing|bit|part|stuff|business)s? (?:about|with|on|of|i)\b"
_NO_TEXT = (  # what is named is no part of a text that is being written
    r"(?!.*\bfrom (?:the|my|our|this|that|his|her|its|their)\b)"
    r"(?!.*\b(?:essay|e-?mail|letter|draft|text|poem|story|paragraph|sentence|chapter|section|page|line|intro(?:duction)?"
    r"|list|code|recipe|report|article|post|summary|answer|reply|cv|speech|version|sound|read|too|shorter|longer|instead"
    r")s?\b)"
)
_THING_ABOUT = (  # "the bit about the horses", but not "the bit about horses in my essay"
    rf"(?:the|that|this) (?:\w+ )?(?:thing|bit|stuff)s? about\b{_NO_TEXT}"
)
_STUFF_OF = (  # "forget milos wrist stuff", "don't keep Ms Achebe's cat thing"
    r"(?:about )?(?:(?:mr|mrs|ms|miss|dr)\.? )?(?:my|our|his|her|their|[\w-]+(?:['’]s|s['’]|s))(?<!\bthis)"
    r" (?:[\w'’-]+ ){1,3}(?:stuff|thing|business)(?=\s*(?:$|[,.;:!–—]|(?:please|pls|plz)\b))"
)
_NOTE = r"(?:a|any) (?:note|record)s? of\b"
_BARE = r"(?:about )?(?:it|that|this|them|those|that one|all that|all of that|the lot)\b\W*"
_REASON = (
    r"\b(?:(?:i\s+)?should(?:n['’]?t| not|nt)\s+(?:have|be|of|ve)\b|don['’]?t\s+(?:want|keep|store|save"
    r"|remember|need)\s+"
    r"(?:it|that|this|them|to see)|dont want (?:it|that|my)|do not (?:want|keep|store|save)\b[^.!?]{0,30}|wipe"
    r" it|nobody"
    r" (?:should|must|can) know|don['’]?t want (?:you|u) to (?:keep|store|have|know)|"
    r"keep it to yourself|you know nothing|(?:written|stored|saved|kept|lying|sitting"
    r"|sat)\s+"
    r"(?:down\s+)?(?:in|any)|swore me|in confidence|between us|i never said|from (?:your|the) memory|out of"
    r" your memory"
    r"|i mean it)"
)
_OWN_MEMORY = r"\b(?:from|out of) your (?:memor(?:y|ies)|notes|records)\b|\bmy\b.*\bfrom memory\b"
_FIGURE = (
    r"^\W*(?:(?:that\s+)?you(?:['’]re|\s+are)\b"
    r"|(?:it|that|about it|about that|this)\s*(?:,|\.|;|-|–|!|…)*\s*(?:let['’]?s|what about|how about"
    r"|i['’]?ll|we['’]?ll"
    r"|instead|anyway|moving on|next|can you|could you|tell me|is\b|what\b|how\b|which\b|where\b|when\b|who\b"
    r"|do\b|not"
    r" important|doesn|no worries|entirely)|\S+(?:\s+\S+){0,4}\s+for\s+(?:a|one|the|now|just|right)\s*(?:sec"
    r"|second|moment"
    r"|minute|bit|while|now|time|today|tonight)?|(?:to|not|nothing|whether|how|when|where|why|who|me|myself|me-not)\b"
    r"|(?:about\s+)?(?:the|my|your|all|any|previous|prior|above|last|every)?\s*(?:previous|prior|above|earlier"
    r"|last)?\s*"
    r"(?:instructions?|prompts?|rules?|question|request|task|order)\b)"
)
_FORGET = re.compile(rf"{_LEAD}{_ASK}(?:forget|un-?remember)\b(?P<object>[^.!?\n…]*)", _I)
_REMOVE = re.compile(
    rf"{_LEAD}{_ASK}(?:erase|delete|remove|wipe|bin|scrap|drop|lose|scratch|strike|clear|purge|get rid of"
    rf"|take(?=\s+(?:that|it|this)\b[^.!?\n]*\bmemory)|take out(?=\s+{_THING_ABOUT}))\b(?P<object>[^.!?\n…]*)",
    _I,
)
_NEVER = r"(?:don['’]?t|dinnae|(?:do )?not|never)"
_KEEP = (
    rf"(?:{_NEVER}|(?P<wish>i (?:really |just )?{_NEVER} want (?:you|u) to|i['’]?d rather (?:you|u) didn['’]?t))\s+"
    r"(?P<verb>keep|store|save|remember|record|memori[sz]e)\s+"
)
_DO_NOT_KEEP = re.compile(
    rf"{_LEAD}{_ASK}{_KEEP}(?P<object>(?:that|this|it|what i|any of (?:that|this)|anything about|my"
    rf"|{_THING_ABOUT}|{_STUFF_OF}|{_NOTE})\b[^.!?\n…]*)",
    _I,
)
_RUN_ON = re.compile(rf"\s{_KEEP}(?P<object>(?:this|that|it)\W*(?:please|pls|plz|ok|okay)?\W*)$", _I)
_SUBJECT = re.compile(  # "my parents dont remember this"
    r"(?:\b(?:i|we|you|u|they|he|she|it|people|folks|everyone|who|that|which|to|do|does|did|can|could|will|would|may|might"
    r"|should|must|mum|mom|dad|kids)|\b(?:the|my|our|his|her|their|these|those|some|most|other)(?: \w+)? \w+s)$",
    _I,
)
_THIS_ALONE = (
    r"(?:(?:this|that|it|any of (?:this|that))\b(?! one)(?:,? (?:please|pls|plz|ok|okay|thanks|either|though|anywhere"
    r"|ever|at all|for me|any ?more|on file|stored|in (?:your|any|the) (?:memory|memories|notes|records?"
    r"|logs?|chats?|history|files?)|(?:lying|sitting)\b[^,]*))*)\s*(?=$|[,:;–—)]|-\s|\b(?:but|because|bc|cos|and)\b)"
)
_HEARSAY = re.compile(  # "Don't remember this, but my mum says I cried": who says it does not remember
    r"\b(?:apparently|supposedly|says?|told me|(?:i|we) (?:was|were) (?:born|\w+ years|a (?:kid|child|baby)|little"
    r"|small|young|\d)|as a (?:kid|child|baby))\b",
    _I,
)
_VERB = (
    r"(?:is|are|was|were|am|has|have|had|lives?|works?|owes?|likes?|loves?|hates?|wants?|got|gets|lost|left|died"
    r"|drinks?|smokes?|needs?|takes?|cheated|cheats|broke|kissed|slept|failed|quit)"
)
_INSTEAD = (
    r"\band (?:start|begin|write|make|give|explain|tell|let|imagine|pretend|just|then|try|do|help|answer|read|listen"
    r"|think|move|focus|use|go|get|come|look)\b|\bfor (?:this|that|the|a|now|once|today|tonight)\b"
)
_FACT = (  # a clause, and not "that dress"
    r"that (?:(?!(?:you|u|it|this|these|there|we|one|i (?:love|like))\b)"
    rf"(?:i['’]?m|[\w-]+['’]s|(?:[\w'’-]+ ){{1,4}}?{_VERB})"
    r"|we(?:['’]re|['’]ve got| have(?! to\b)| own| are| live| owe)(?! just\b)"
    r"|(?:my|our|his|her|their|s?he|they) [\w'’-]+|the [^,;:–—]+(?= (?:me|my|us|our)\b)"
    r"|i (?!(?:love|like|asked?|brought|bothered|exist)\b)[\w'’-]+"
    rf"|(?!{_NO_NAME})(?-i:(?:[A-Z][\w-]+ )+[a-z]+(?:[^\Ws]s|ed))) [^,;:–—]+"
)
_ALL_ABOUT = (
    r"(?:everything|anything|(?P<all>all))(?: that)?(?P<you> (?:you|u)(?:['’]?ve| have| know| remember| got| ever"
    rf"| still| learned| learnt| heard| noted| saved| stored)*)? (?:about|on|of|related to|to do with)"
    rf" (?!{_BARE})(?P<whom>[^,;–—]+)"
)
_LAST = re.compile(  # "that", in other words
    r"\b((?:forget|unremember|erase|delete|remove|wipe|scrap|drop|scratch|strike|bin|store|save|keep|remember|record)"
    rf"(?: about)?) (?:(?:the thing|what) i {_SAID}(?: (?:you|u))? last(?=\W*$)|"
    r"(?:the|my) (?:very )?(?:last|previous) (?:thing|bit|part|stuff|message|sentence|line|comment|one) (?:that )?"
    rf"i(?:['’]?ve)? (?:just )?{_SAID}(?: (?:to )?(?:you|u))?\b|the (?:very )?(?:last|previous) thing(?=\W*$)"
    r"|(?:my|the) (?:very )?(?:last|previous) (?:message|comment|remark)\b(?! (?:in|of|to)\b| from (?!your)))",
    _I,
)
_LAST_FEW = r"\b(?:last|previous) (?:two|three|four|few|couple of|\d) (?:things|messages|bits|sentences)\b"
_PRETEND = re.compile(
    rf"{_LEAD}{_ASK}pretend\s+(?P<object>(?:that\s+)?i\s+(?:never|didn['’]?t)\s+{_SAID}\b[^.!?\n…]*)", _I
)
_SAID_BEFORE = re.compile(
    rf"{_WHAT_I_SAID}|\bin (?:my|the|our) [\w ]{{2,20}}$|\bi\s+{_SAID}\s+(?:you|u|it|that|the|here)|\b(?:you|u)"
    rf" (?:i|that i)\s",
    _I,
)
_LONG_AGO = re.compile(
    r"\b(?:other day|last (?:week|month|time|night|year)|yesterday|earlier|a while (?:ago|back)|(?:bit|while"
    r"|weeks?|days?"
    r"|months?|time) (?:ago|back)|the past|back then|before)\b|\btold (?:you|u) (?:about )?(?:the|my|in|on)\b",
    _I,
)
_EVERYTHING = re.compile(
    r"^\W*(?:about\s+)?(?:everything|all(?: of it| my memor\w+| of my memor\w+| memor\w+)?|it all|me|my memor\w+)"
    r"(?:\s+(?:you (?:know|have|remember)|about me|i(?:['’]ve)? (?:ever )?(?:told|said)(?: to)?(?: you)?))*\W*"
    r"(?:please|pls)?\W*$",
    _I,
)
_NOT_ASKED = r"\W*(?:(?:and|so|but|now|then|also|maybe|do|should|might) )*(?:let['’]?s|we|you|u)\b"
_NEVER_MIND = rf"\W*(?:forget (?:about )?|{_NEVER} remember )(?:it|that|this)\W*"  # or "I do not remember"
_IS_BARE = rf"(?:it|that|this)\b(?! \w)|{_WHAT_I_SAID}"
_NAMED_AFTER = r"[,;–—]\s*(?:please,?\s*)?(?:about|the|what i)\b"  # "forget it please, the races"
_QUOTED = re.compile(r"```.*?(?:```|$)|[\"“„«][^\"”“»]{2,}[\"”»]", re.DOTALL)


def read_forget_request(text: str) -> ForgetRequest | None:
    """The request in a message, None for a message that makes none. A document makes none."""
    lowered = text.lower()
    if len(text) > _LONGEST or not (any(hint in lowered for hint in _HINTS) or may_be_foreign(lowered)):
        return None
    lines = (" ".join(line.split()) for line in _QUOTED.sub(" ", text).splitlines())
    plain = _LAST.sub(r"\1 what I just said", "\n".join(filter(None, lines)))
    matches = list(_find(plain))
    if not matches:
        return None
    named = [_object(match) for match in matches]
    if any(map(_EVERYTHING.match, named)):
        return ForgetRequest((), "everything")
    if re.fullmatch(_NEVER_MIND, plain, _I) or re.search(_LAST_FEW, plain, _I):
        return ForgetRequest((), "unclear")
    sentences = [_sentence(plain, match) for match in matches]
    topics = list(map(_find_topic, matches, named, sentences))
    best = max(range(len(matches)), key=lambda number: min(len(topics[number]), 2))
    is_bare = not topics[best] or any(map(_is_bare, named))
    first = min(matches, key=lambda match: match.start())
    if own := _own_statement(plain, first, is_bare=is_bare):
        return ForgetRequest(topics[best], "message", own, is_bare, find_topic(plain))
    if _LONG_AGO.search(sentences[best]) or any(map(_is_about_one, named)):
        return ForgetRequest(topics[best], "earlier" if topics[best] else "unclear", around=find_topic(plain))
    return ForgetRequest(topics[best], "recent", "", is_bare, find_topic(plain))


def request_about(text: str) -> ForgetRequest:
    """The request to forget what a text names, which need not be a sentence."""
    topic = find_topic(text)
    return read_forget_request(text) or ForgetRequest(topic, "earlier" if topic else "unclear")


def _find(text: str) -> Iterator[re.Match[str]]:
    """The commands that mean it. A wish that something is not kept may only be the reason for another command."""
    matches = [match for match in _FORGET.finditer(text) if _means_it(text, match, is_forget=True)]
    matches += [match for match in _REMOVE.finditer(text) if _means_it(text, match, is_forget=False)]
    matches += _PRETEND.finditer(text)
    unkept = [match for match in _DO_NOT_KEEP.finditer(text) if _means_not_to_keep(text, match)]
    matches += (match for match in unkept if not (match["wish"] and matches))
    yield from matches
    yield from find_foreign_requests(text)
    run_on = None if matches else _RUN_ON.search(text)
    if run_on and not _SUBJECT.search(text[: run_on.start()]) and _means_not_to_keep(text, run_on):
        yield run_on


def _find_topic(match: re.Match[str], name: str, sentence: str) -> tuple[str, ...]:
    if about := re.match(_ALL_ABOUT, name, _I):
        return find_topic(about["whom"])
    if stuff := re.match(_STUFF_OF, name, _I):
        return find_topic(stuff[0].rpartition(" ")[0])
    topic = _named_topic(name) or find_topic(sentence)
    if "verb" not in match.groupdict():
        return topic
    return () if _is_bare(name) else tuple(word for word in topic if word != match["verb"].lower())


def _named_topic(name: str) -> tuple[str, ...]:
    """The words of what a command names, if they say more than a kind of thing, as "my home address" does."""
    topic = find_topic(name)
    return topic if any(not re.fullmatch(_DATUM, word) for word in topic) else ()


def _object(match: re.Match[str]) -> str:
    """What a command names: of English all that follows it in its sentence."""
    return (match["object"] if "object" in match.re.groupindex else name_foreign(match)).strip()


def _is_bare(name: str) -> bool:
    """Whether what a command names, up to a comma, says no more than "that" or "what I said"."""
    return not name or bool(re.match(_IS_BARE, name, _I) and not find_topic(re.split("[,;–—]", name)[0]))


def _means_it(text: str, match: re.Match[str], *, is_forget: bool) -> bool:
    named = match["object"].strip()
    after = text[match.start("object") :].lstrip()
    polite = _is_polite(match[0]) or (is_forget and bool(re.search(_I_WANT, match[0], _I)))
    alone = not (
        text[: match.start()].strip() or text[match.end() :].strip(" .!…") or re.match(_NOT_ASKED, match[0], _I)
    )
    if re.fullmatch(_HOME if is_forget else _MY_DATUM, named, _I):
        return alone or polite
    if not is_forget and (re.search(_OWN_MEMORY, named, _I) or _names_thing(named)):
        return True
    if re.search(_FIGURE, after, _I):
        return False
    if _names_one(named, alone=alone, is_forget=is_forget):
        return True
    said = re.search(_WHAT_I_SAID, named, _I) or _SAID_BEFORE.search(text[: match.start()][-120:])
    thing = re.match(_THING, named, _I)
    datum = re.match(_NAMED_DATUM, named, _I)
    bare = None if datum or thing else re.match(_BARE, named, _I)
    reason = re.search(_REASON, text, _I)
    if is_forget and re.search(_WHAT_I_SAID, named, _I):
        return True
    end = bare or datum
    whole = not text[: match.start()].strip() and not after[end.end() if end else 0 :].strip(" .!…")
    meant = polite or reason or said or whole
    if _EVERYTHING.match(named) and (is_forget or re.search("know|memor|told", named)):
        return True
    if is_forget:
        is_own = datum and re.match(rf"that|this|my|those|{_NAMED_DATUM}{_OF_MY}", named, _I)
        return bool(thing or is_own or ((bare or datum) and meant) or (named and polite))
    if whole and datum and re.match(r"\W*(?:scrap|wipe|erase)", match[0], _I):
        return True
    if re.search(r"\bfrom\b(?!\s+(?:here|this chat))", named, _I):
        return False
    return bool((said and (bare or re.search(_WHAT_I_SAID, named, _I) or datum)) or ((bare or datum) and reason))


def _means_not_to_keep(text: str, match: re.Match[str]) -> bool:
    """Whether it is more than "(I) don't remember this film" and "don't keep it in the sun"."""
    named, verb = match["object"].strip(), match["verb"].lower()
    if re.search(r"\b(?:we|might|let['’]?s)\b", text[match.start() : match.start("verb")], _I):
        return False
    asks, datum = bool(match["wish"] or _is_polite(text)), re.match(_NAMED_DATUM, named, _I)
    if re.match("anything", named, _I):
        return asks and verb == "remember"
    if _names_thing(named):
        return asks or verb != "remember"
    is_alone = re.match(_THIS_ALONE, named, _I)
    if not (is_alone or datum or re.match("what i", named, _I)):
        is_own = verb not in ("keep", "save") and named[:2].lower() == "my"
        return (is_own or (asks and verb not in ("keep", "save", "store"))) and (asks or verb != "remember")
    if asks or verb != "remember" or re.fullmatch(_NEVER_MIND, text, _I):
        return True
    own = _own_statement(text, match, is_bare=True) if is_alone else ""
    is_surely = named[:4].lower() == "this" or re.search(rf"\b(?:my|our)\b.*\b{_DATUM}\b", own, _I)
    return bool(own and is_surely and not _HEARSAY.search(own))


def _own_statement(text: str, match: re.Match[str], *, is_bare: bool) -> str:
    after = text[match.start("object") :].lstrip() if "object" in match.re.groupindex else ""
    before = text[: match.start()].strip()
    is_named = re.search(_NAMED_AFTER, _object(match), _I) or re.search(
        r"\bwhat i (?:just )?(?:said|told)\b", before, _I
    )
    may_announce = "verb" in match.groupdict() or after.lower().startswith("this:")
    return find_statement(before, after, is_bare=is_bare and not is_named, may_announce=may_announce)


def _is_about_one(name: str) -> bool:
    """Whether a command names all about somebody or something, whenever it was said."""
    all_about = re.match(rf"{_ALL_ABOUT}|(?:everything|anything|all)\b.* about (?!{_BARE})", name, _I)
    return bool(all_about) or _is_name(re.split(rf",?\s*{_POLITE}", name, flags=_I)[0])


def _is_name(text: str) -> bool:
    parts = text.removeprefix("about ").split()
    named = [part for part in parts if part[0].isupper() and not part.isupper() and part.lower() not in NO_TOPIC]
    return 0 < len(parts) < 4 and named == parts and not re.search(_NO_NAME, text, _I)


def _names_one(named: str, *, alone: bool, is_forget: bool) -> bool:
    """Whether a command names somebody or something: alone in its message a name, what is mine or a fact, else all."""
    if re.search(_INSTEAD, named, _I):
        return False
    if is_forget and re.match(_STUFF_OF, named, _I):
        return True
    if is_forget and alone and (_is_own(named) or re.fullmatch(_FACT, named, _I)):
        return True
    about = re.match(_ALL_ABOUT, named, _I)
    if not about or not (is_forget or about["you"] or (alone and re.match(_NO_TEXT, named, _I))):
        return False
    return (alone and not about["all"]) or _is_own(about["whom"])


def _names_thing(named: str) -> bool:
    """Whether what is to be removed or not to be kept is something that was said, and no part of a text."""
    return re.match(f"{_THING_ABOUT}|{_STUFF_OF}|{_NOTE}", named, _I) is not None and not re.search(_INSTEAD, named, _I)


def _is_own(name: str) -> bool:
    return _is_name(name) or re.fullmatch(_MINE, name, _I) is not None


def _is_polite(text: str) -> bool:
    return re.search(rf"{_POLITE}|\b(?:can|could|would|will)\s+(?:you|u)\b", text, _I) is not None


def _sentence(text: str, match: re.Match[str]) -> str:
    """The sentence of the request, and the one next to it where that says what is meant."""
    start = max(text.rfind(mark, 0, match.start() + 1) for mark in ".!?\n") + 1
    ends = [place for mark in ".!?\n" if (place := text.find(mark, match.end())) >= 0]
    own = text[start : min(ends, default=len(text))]
    if len([word for word in words(own) if word not in NO_TOPIC]) > 1:
        return own
    previous = max(text.rfind(mark, 0, max(0, start - 1)) for mark in ".!?\n") + 1
    before = text[previous:start]
    return before + own if _SAID_BEFORE.search(before) or _LONG_AGO.search(before) else own
