"""What a reply does, by rules over its words: gives an answer as its own, or says that it does not know.

English negation; other languages are compared without it. Depends on no model.

Precision and recall of both rules on labelled replies: `python -m tests.perf.measure_reply_rules`.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence

_CLAUSE_END = re.compile(r"[.,;:!?](?=\s|$)|\s[-–—]\s|\bbut\b", re.IGNORECASE)
_NEGATED = (
    r"(?:not|never|nor|neither|cannot"
    r"|(?:is|was|are|were|do|does|did|have|has|had|wo|would|ca|could|must|should|need|ai)nt)"
)
_SCOPE = re.compile(  # of a clause's words before an answer: a negation that reaches to the end
    rf"\b{_NEGATED}\b(?! (?:only|just|merely|simply)\b)(?!.*\b(?:without|until|before)\b)"
    r"|\bno longer\b|\b(?:instead of|rather than|except|without|no)(?: \w+){0,2} $"
)
# What somebody cannot or must not do is an answer itself: "You can't eat peanuts."
_FORBIDDEN = re.compile(r"\b(?:you|he|she|they|we|it) (?:cant|cannot|mustnt|must not|shouldnt|should not|may not)\b")
_TAG = re.compile(r"^ (?:is|was|are|were|do|does|did|have|has|wo|would|ca|could)nt \w+ ")  # "Wasn't it Anna?"

_ADVERBS = r"(?: (?:yet|really|actually|currently|ever|even|quite|seem to|be able to|been|to))*"
_DENIAL = re.compile(
    r"\bi(?: really| just)?(?: (?:do|did|could|ca|was|am|have|had|would)n't| (?:do|did|could|can|was|am|have"
    r"|had)? ?not|'m not|'ve not"
    rf"| cannot| never){_ADVERBS} (?:know|say|tell|told|recall|remember|sure|certain|aware|find|see|hear|heard|catch"
    r"|have (?:any|that|this|the|enough|access|a record|information|details|it)"
    r"|(?:think|believe)(?: that)? you(?:'ve| have)?(?: ever)? (?:said|told|mentioned|shared|gave))\b"
    r"|\bi(?:'m| am) (?:afraid i (?:do|can)n't|unable to (?:find|say|recall|tell)|unaware|unsure)\b"
    r"|\bi lack\b|\bi(?:'d| would) need you to tell\b|\bunknown to me\b|\bbeyond what i know\b"
    r"|\byou(?: have|'ve|'d| had| did)?(?:n't| not| never| yet to| only)(?: (?:yet|ever|really|actually))*"
    r" (?:tell|told|say|said|mention(?:ed)?|shared?|give|gave|given|let me know|brought (?:it|that|this) up|bring"
    r"|specif(?:y|ied))\b(?! (?:\w+ )?to (?!me\b))(?! (?!me\b)(?:him|her|them|anyone|anybody|your)\b)"
    r"|\byou(?:'ve| have)? (?:told|mentioned|said|named|shared|spoken?)\b[^.!?]*,? (?:but|and)"
    r" (?:not?|never|nothing)\b"
    r"|\byou never (?:named|gave|specified)\b"
    r"|\bwe(?:'ve| have| did| had)?(?:n't| not| never)(?: \w+){0,3}?"
    r" (?:talk|discuss|speak|spoke|cover|touch|got\b|g[eo]t )"
    r"|\b(?:has|have|had|did)(?:n't| not| never) (?:yet )?(?:come|came) up\b"
    r"|(?:n't|\bnot) (?:something|anything|a thing)(?: that)? (?:we|you|i)\b"
    r"|\b(?:it|that|this|which)(?:'s| is| was)(?:n't| not) (?:mentioned|clear|specified|stated|recorded)\b"
    r"(?! in the| to (?!me\b))"
    r"|\b(?:ha(?:s|ve)|was|were)(?:n't| not| never)(?: yet)?(?: been)? (?:mentioned|specified|shared|covered"
    r"|been said)\b"
    r"(?! (?:to|in the)\b)"
    r"|\bnever (?:came up|got (?:round|around) to)\b|(?:^|[.;]\s+)not (?:mentioned|that i know|as far as i)\b"
    r"|\bi(?:'ve| have|'d)? (?:do not|don't|haven't got|have not got|never had)(?: seem to)?(?: have)? (?:a|an|your"
    r"|the|anything)\b"
    r"|\bi(?:'ve| have| was|'ve been)?(?: been)? never(?: been)? (?:told|learn|learned|learnt|heard)\b"
    r"|\bi(?:'ve| have)? (?:know |have |got )*nothing (?:about|on)\b|\bnobody (?:has )?told me\b"
    r"|\bnothing comes to mind\b"
    r"|\b(?:was|were|is|are)(?:n't| not) (?:shared with|available to|known to|said to) me\b"
    r"|\b(?:is|are)(?:n't| not) (?:anywhere )?(?:in|within) (?:our|what|my)\b|\bin anything you\b"
    r"|\bisn't anything in my\b"
    r"|\b(?:your (?:messages|words)|what you(?:'ve| have)? (?:wrote|written|said|told me|shared)) (?:do|does)(?:n't"
    r"| not)"
    r" (?:say|mention|tell)\b"
    r"|\b(?:but|and|,)(?: (?:not|never|none)) about (?:its|the|his|her|your|what|who|when|where|how|which)\b"
    r"|\bi(?: really| just)? ca(?:n't|nnot) (?:place|work (?:it )?out|help there)\b|\bi(?:'m| am) unable to answer\b"
    r"|\bi(?:'d| would) (?:only )?be guessing\b|\bdrawing a blank\b|\bnews to me\b|\bin the dark\b|\bno clue\b"
    r"|\bbeats me\b"
    r"|\bescapes me\b|\bfirst time i(?:'ve)? hear|\bunclear to me\b|\bi(?:'m| am) missing (?:that|this|it)\b"
    r"|\b(?:kept (?:that|it) to yourself|left out the|let me in on)\b|\bso far you(?:'ve| have) told me nothing\b"
    r"|\byou(?:'ve| have)?(?:n't| not) (?:brought up|let me|so far)\b|\ba detail i don't have\b"
    r"|\bnothing (?:in (?:our|what|my|the (?:chat|conversation|memor|note))|about (?:that|this|it)\b)"
    r"|\bmy (?:memory|notes) (?:holds?|ha(?:s|ve)|says?) (?:nothing|no)\b"
    r"|(?:^|[.;:!?,]\s+|\bthere(?:'s| is| are| was)|\bi(?:'ve| have)(?: got)?|\bi)\s*no"
    r" (?:information|record|memory|idea|mention|details?|trace|way of knowing)\b"
    r"|(?:^|[.!?]\s+)(?:hmm, |sorry, )?(?:not sure|unsure|unknown|(?:do|did)n't know|ca(?:n't|nnot) (?:say|help|tell)"
    r"|couldn't (?:say|tell))(?=[,.!;: ]*$|[,.;]| (?:there|about|what|which|who|when|where|if|whether)\b)",
    re.IGNORECASE,
)


def contains_answer(text: str, accepted: Sequence[str], rejected: Sequence[str] = ()) -> bool:
    """Whether the text gives one of the accepted answers, as whole words, and none of the rejected ones.

    Case, accents, punctuation and spaces are ignored. What a clause denies is not given: "It is not Lyon, it is Paris"
    gives Paris alone.
    """
    return _gives_any(text, accepted) and not _gives_any(text, rejected)


def contains_any(text: str, parts: Sequence[str]) -> bool:
    """Whether one of the parts stands in the text, in whatever case."""
    lower = text.lower()
    return any(part.lower() in lower for part in parts)


def abstains(reply: str) -> bool:
    """Whether the reply says that the speaker does not know, or was not told, what was asked."""
    return _DENIAL.search(reply.strip().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")) is not None


def _gives_any(text: str, answers: Sequence[str]) -> bool:
    clauses = [_plain_words(clause) for clause in _clauses(text)]
    return any(_gives(_plain_words(text), clauses, _plain_words(answer)) for answer in answers)


def _gives(text: str, clauses: Sequence[str], answer: str) -> bool:
    if answer not in text:
        return False
    before = [clause[: clause.index(answer) + 1] for clause in clauses if answer in clause]
    return not before or not all(map(_is_negated, before))  # where no clause holds it all, the answer spans several


def _is_negated(before: str) -> bool:
    """Whether a clause's plain words up to an answer deny it."""
    if _FORBIDDEN.search(before) or _TAG.match(before):
        return False
    return _SCOPE.search(before) is not None


def _clauses(text: str) -> Iterator[str]:
    start = 0
    for end in _CLAUSE_END.finditer(text):
        yield text[start : end.start()]
        start = end.end()
    yield text[start:]


def _plain_words(text: str) -> str:
    """The words separated by single spaces, with one at either end, so that `in` compares whole words."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    letters = "".join(char for char in decomposed if not unicodedata.combining(char))
    words = re.findall(r"\w+", letters.replace("'", "").replace("\N{RIGHT SINGLE QUOTATION MARK}", ""))
    return f" {' '.join(words)} "
