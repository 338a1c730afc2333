"""The gate: decides whether a model's text may become memory. It stands before every unit and note that an LLM wrote.

Weak models repeat the examples of their prompt as if they were somebody's life, fill a list with "(empty)" or with one
sentence twenty times, and name people whom nobody mentioned. What the gate refuses becomes a `RefuseText`, to be
committed with the other changes; what it admits is unchanged. It decides by words alone, without a model, so the same
text is always judged the same. Does not depend on any system; a prompt's `inputs` are what its answer was made of.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from functools import cached_property

from localmem.grounding.sources import Sources
from localmem.llm.structured_output import count_fallback
from localmem.text.parse import fold, sentences, words
from localmem.types import Prompt, RefusalReason, RefuseText, Turn

_RECORDED = 400  # characters of a refused text that are recorded


def normalise(text: str) -> str:
    """A text without case, punctuation and spaces: texts that agree in this are the same statement."""
    return "".join(filter(str.isalnum, fold(text)))


class Gate:
    """Judges the texts of one step, the end of a session for example, and keeps what it refused in `refusals`.

    `turns` are what the step reads; `existing` the texts that the bank holds live: neither they nor what was admitted
    before is stored again, if they are given.
    `fallbacks` counts, by prompt name, the answers of which nothing could be used.
    """

    def __init__(self, turns: Sequence[Turn], fallbacks: Counter[str], existing: Iterable[str] | None = None) -> None:
        self.refusals: list[RefuseText] = []
        self.fallbacks = fallbacks
        self._turns = turns
        self._dialogue = _Dialogue(turns)
        self._existing = {normalise(text) for text in existing or ()}
        self._admits_once = existing is not None

    def admit(self, prompt: Prompt, texts: Iterable[str]) -> list[str]:
        """Those of a model's statements that may be stored, with single spaces, each once and in order."""
        answered = _Answered(prompt, self._dialogue)
        repeats: set[str] = set()
        admitted = []
        for text in texts:
            statement = " ".join(text.split())
            reason, detail = answered.fault(statement)
            plain = normalise(statement)
            if reason is None and (plain in repeats or plain in self._existing):
                reason = "duplicate"
            if reason is None:
                admitted.append(statement)
            elif statement:
                self._refuse(prompt, statement, reason, detail)
            repeats.add(plain)
        if self._admits_once:
            self._existing |= {normalise(statement) for statement in admitted}
        return admitted

    def admit_sentences(self, prompt: Prompt, texts: Iterable[str]) -> list[str]:
        """The sentences of a longer text that may be stored; counts a fallback when none is left."""
        admitted = self.admit(prompt, texts)
        if not admitted:
            count_fallback(prompt.name, "its answer holds nothing that can be stored", self.fallbacks)
        return admitted

    def admit_text(self, prompt: Prompt, text: str) -> str:
        """A text of some sentences without those that are refused; "" when none is left."""
        pieces = sentences(text)
        admitted = self.admit(prompt, pieces)
        return " ".join(text.split()) if len(admitted) == len(pieces) else " ".join(admitted)

    def _refuse(self, prompt: Prompt, text: str, reason: RefusalReason, detail: str) -> None:
        sources = tuple(turn.id for turn in self._turns)
        self.refusals.append(RefuseText(text[:_RECORDED], reason, prompt.name, sources, self._turns[-1].time, detail))


Fault = tuple[RefusalReason | None, str]
_CLAIMS = ("name", "number", "date")


def find_fault(prompt: Prompt, turns: Sequence[Turn], text: str) -> Fault:
    """Why an answer to a prompt may not be stored, and the name, number or date at fault; (None, "") if it may."""
    return _Answered(prompt, _Dialogue(turns)).fault(text)


def is_usable(prompt: Prompt, text: str) -> bool:
    """Whether a text is more than a placeholder, a loop or a copy of the prompt, whatever it claims."""
    return find_fault(prompt, (), text)[0] in (None, *_CLAIMS)


class _Dialogue:
    """What a step reads: the same for all answers of the step, however many there are."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self._turns = turns
        self.speakers = list(dict.fromkeys(turn.speaker for turn in turns))
        self.days = sorted({turn.time.date() for turn in turns})

    @cached_property
    def quotable(self) -> Set[str]:
        """Every turn and every sentence of one, without case and punctuation."""
        return _quotable(turn.text for turn in self._turns)


def _quotable(texts: Iterable[str]) -> Set[str]:
    return {normalise(sentence) for text in texts for sentence in (text, *sentences(text))}


class _Answered:
    """A prompt that was answered: its instructions, and its inputs as the sources of the answer."""

    def __init__(self, prompt: Prompt, dialogue: _Dialogue) -> None:
        self._instructions = "\n".join(message.content for message in prompt.messages if message.role == "system")
        inputs = prompt.inputs.values()
        text = "\n".join([*inputs, " ".join(dialogue.speakers)])
        self._sources = Sources(text, dialogue.days, _names(self._instructions))
        self._quotable = (_quotable(inputs), dialogue.quotable)
        self._speakers = {word for name in _SPEAKERS for word in words(prompt.inputs.get(name, ""))} | _NOBODY

    def fault(self, statement: str) -> Fault:
        """Why a statement may not be stored; (None, "") if it may, as when a source says the same word for word."""
        if len(words(statement)) > 1 and any(normalise(statement) in quotable for quotable in self._quotable):
            return None, ""
        if is_placeholder(statement):
            return "placeholder", ""
        if is_loop(statement):
            return "loop", ""
        if self._is_copied(statement):
            return "copied from the prompt", ""
        return self._sources.missing(statement) or (None, "")

    def _is_copied(self, statement: str) -> bool:
        """Whether a sentence is one of the prompt's, some of its words nobody's: with another subject for example."""
        return any(
            _overlap(own, example) and any(word in example and not self._sources.holds(word) for word in own)
            for own in ([word for word in piece if word not in self._speakers] for piece in _word_groups(statement))
            for example in self._examples
        )

    @cached_property
    def _examples(self) -> list[list[str]]:
        """The words of each sentence of the instructions; short ones may be repeated by chance."""
        return [example for example in _word_groups(self._instructions) if len(example) > 2]


_SPEAKERS = ("user", "assistant", "about", "speaker", "asker", "other")  # the inputs that name people
_NOBODY = frozenset(["user", "assistant", "the"])
_COPIED = 0.75  # the share of a statement's words that stand in one example, for it to count as copied


def _word_groups(text: str) -> list[list[str]]:
    """The words of each part of a text between full stops, colons, quotation marks, brackets and line breaks."""
    return list(map(words, re.split(r"[.!?。！？:\n\"\[\]{}]+", text)))


def _overlap(own: Sequence[str], example: Sequence[str]) -> bool:
    """Whether the words are those of the example, with at most one in four replaced."""
    shared = sum((Counter(own) & Counter(example)).values())
    return shared > 1 and len(own) > 2 and shared >= _COPIED * len(own) and shared >= len(example) // 2


def _names(instructions: str) -> frozenset[str]:
    """The names of a prompt's examples, folded: words that it writes with a capital only, also inside sentences."""
    inside = {fold(word) for word in re.findall(r"(?<=[a-z,] )[A-Z][^\W\d_]+", instructions)}
    inside |= {fold(word) for word in re.findall(r"^([A-Z][^\W\d_]+):", instructions, re.MULTILINE)}
    lower = {fold(word) for word in re.findall(r"\b[a-z][^\W\d_]+", instructions)}
    return frozenset(inside - lower)


# -- texts that say nothing

_EMPTY_WORDS = """empty, none, null, nil, n/a, na, nothing, unknown, undefined, todo, tbd, string, text, memory,
memories, fact, facts, sentence, summary, insight, event, events, knowledge, example, placeholder, nothing to remember,
not applicable, not available, not mentioned, not specified, not provided, leer, keine, keines, nichts, unbekannt,
keine angabe, keine angaben, vide, aucun, aucune, rien, neant, inconnu, vacio, ninguno, ninguna, nada, vuoto, nessuno,
niente, geen, leeg, 无, 空, 没有, 暂无, 未知, 无内容, なし, 없음, нет, пусто"""
_EMPTY = frozenset(map(normalise, _EMPTY_WORDS.split(",")))
_NONE = re.compile(
    r"(there (is|are|were|was) )?(no|not any|keine?|keinerlei|aucune?|pas d['e ]|ninguna?|没有|无)\s?"
    r"(new |relevant |further |other |specific |weiteren? |neuen? |nouvelles? )?"
    r"(information(en)?|facts?|memor(y|ies)|events?|insights?|knowledge|data|content|details?|changes?|dialogue|"
    r"conversation|summary|fakten|erinnerung(en)?|ereignisse|angaben|faits?|souvenirs?|infos?|信息|内容|记忆|事实)"
    r"( (is|are|was|were|to|that|about|given|available|provided|mentioned|found|in|for|über|sur|worth)\b.*)?",
    re.IGNORECASE,
)
_TALK = re.compile(
    r"(sure|certainly|of course|okay|ok)[,!.]? here|here (is|are) (the|a|an|your|my|some) (\w+ ){0,3}"
    r"(summary|memory|memories|list|facts|answer|json|sentences|insights|chronicle|portrait)\b|"
    r"(the|this) (dialogue|conversation|text|exchange) (does not|doesn't|did not|contains no|holds no|has no)\b|"
    r"as an ai\b|i('m| am) sorry\b|i cannot\b|[\[<{(]*(insert|your|name|fact|sentence|memory) ?\w*[\]>})]+$",
    re.IGNORECASE,
)


def is_placeholder(text: str) -> bool:
    """Whether a text stands for nothing: no word at all, "(empty)", "no information", or talk about the task."""
    plain = normalise(text)
    bare = text.strip(" \t.!?()[]{}<>*_\"'。（）")
    numbered = re.fullmatch(r"([^\W\d_]+)\d{1,2}", plain)
    return (
        not plain
        or plain in _EMPTY
        or bool(numbered and numbered[1] in _EMPTY)
        or bool(_NONE.fullmatch(bare))
        or bool(_TALK.match(text.strip()))
    )


# -- loops

_PHRASE = 200  # words of the longest phrase whose repetition is looked for: all phrases would cost their square


def is_loop(text: str) -> bool:
    """Whether a text repeats itself: a phrase again and again in a row, or few phrases over and over."""
    tokens = words(text)
    return _repeats_phrase(tokens) or (len(tokens) > 23 and _share_of_new(tokens) < 0.6)


def _repeats_phrase(tokens: Sequence[str]) -> bool:
    """Whether one word stands four times in a row, two words three times, or a longer phrase twice and half again."""
    least = {1: 4, 2: 6}
    return any(
        _longest_period(tokens, size) >= least.get(size, size * 5 / 2)
        for size in range(1, min(_PHRASE, len(tokens) * 2 // 5) + 1)
    )


def _longest_period(tokens: Sequence[str], size: int) -> int:
    """The most words in a row of which each stands again `size` words further on, those included."""
    longest = run = 0
    for first, again in zip(tokens, tokens[size:], strict=False):
        run = run + 1 if first == again else 0
        longest = max(longest, run)
    return longest + size


def _share_of_new(tokens: Sequence[str]) -> float:
    """Distinct groups of three words among all of them."""
    groups = list(zip(tokens, tokens[1:], tokens[2:], strict=False))
    return len(set(groups)) / len(groups)
