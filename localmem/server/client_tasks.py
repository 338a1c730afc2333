"""Recognise what clients send on their own account: titles, tags, search queries, few-shot examples, agents' scratch.

Judged by structure, so that an unknown client's prompts are recognised as well: a dialogue embedded in a message, an
exact form of the answer, a template that ends where the model is to fill it in, examples that nobody said here. No sign
decides alone but a task that the client names, a form of an agent and a hole to fill; a message in the first person
needs more of them, because losing a person's words is worse than storing a prompt. Pure functions of one request; the
shapes are those of tests/server/client_requests.yaml, which names their sources.
"""

import re
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import NamedTuple

from localmem.server.schemas import ChatInput, ChatRequest
from localmem.types import Message

_ENOUGH = 3  # points; what each sign is worth is in `_score`
_TINY_ANSWER, _SHORT_ANSWER = 32, 100  # tokens
_CLIPPED = 8000  # characters of each end of a message that are looked at
_I, _M, _S = re.IGNORECASE, re.MULTILINE, re.DOTALL
_ASKER = "user|human|you|me|customer|用户|用戶|我|usuario|utilisateur|benutzer|nutzer"
_ANSWERER = "assistant|ai|bot|model|chatbot|chatgpt|gpt|llm|助手|机器人|asistente"


def _label(names: str) -> re.Pattern[str]:
    """A line that begins with the name of a side: `User:`, `- You: `, `# ASSISTANT`, `[AI]:`."""
    gap = r"[ \t]*"
    return re.compile(rf"^[ \t>*\-\[(\"']*(?:#+{gap}(?:{names}){gap}:?{gap}$|(?:{names})[\])*\"']*{gap}[:：])", _I | _M)


_ASKER_LINE, _ANSWERER_LINE = _label(_ASKER), _label(_ANSWERER)
_TAG = re.compile(r"<(/?)([A-Za-z][\w-]*+)[^<>\n]{0,200}>")
_HISTORY = re.compile(r"chat|conversation|dialog|histor|transcript|messages", _I)
_WORDS = re.compile(r"user[_-]?\w+|task|feedback|question|query", _I)
_MACHINE = re.compile(r"(?:environment|workspace|editor)[_-]\w+|system-reminder|reminderInstructions|attachments")
_PAYLOAD = re.compile(r"```.*?```|\"\"\".*?\"\"\"|^diff --git .*|(?<=:) ?\"[^\"]{20,}\"[ \t]*$", _S | _M)
_FIRST_PERSON = re.compile(r"\b(?:i|i['’](?:m|ve|d|ll)|my|mine|me|myself)\b|我", _I)
_THIRD_PERSON = re.compile(
    r"\bthe (?:user|human|assistant)(?:['’]s)?\b|\buser(?:['’]s)? (?:query|message|question|input|request)\b", _I
)
_MACHINE_ADDRESS = re.compile(r"\byour (?:task|response|answer|output|reply)\b", _I)
_TASK_NOUN = re.compile(
    r"\b(?:titles?|titling|headline|tags?|keywords?|emojis?|summar\w+|quer(?:y|ies)|follow[- ]?ups?|standalone|name"
    r"|categor\w+|label|commit message)\b|标题|標題|主题|摘要|标签|总结|titel|zusammenfass|título|titre",
    _I,
)
_DIALOGUE_NOUN = re.compile(
    r"\b(?:conversations?|chats?|dialogues?|discussion|thread|messages?|session|history|story|diffs?)\b"
    r"|对话|會話|会话|聊天|这句话|gespräch|unterhaltung|conversación",
    _I,
)
_EXCLUSIVE = re.compile(
    r"\b(?:only|solely|just|exclusively|nothing but)\b[^.\n]{0,40}\b(?:return|respond|reply|output|answer|give|provide"
    r"|title|json|text|name|summary|emoji|quer\w+|code|result)\b"
    r"|\b(?:return|respond|reply|output|answer|give|provide|contain|consist)\w*\b[^.\n]{0,60}"
    r"\b(?:only|solely|just|exclusively|nothing (?:else|but))\b|\bnothing else\b|following format"
    r"|\b(?:no|without(?: any)?|do not (?:use|include|output)|don['’]t (?:use|include|need)|avoid|omit\w*)\b"
    r"[^.\n]{0,30}\b(?:quot\w+|punctuation|explanations?|preamble|lead-in|extra|additional|markdown|prefix\w*"
    r"|commentary|natural language)\b"
    r"|不要(?:解释|标点)|只(?:输出|返回|回复)|直接返回|\b(?:nur den|solo el|uniquement)\b",
    _I,
)
_LENGTH = re.compile(
    r"\b(?:\d+|one|two|three|four|five|six|ten)(?:\s*(?:-|–|to|or)\s*(?:\d+|\w+))?[- ](?:words?|characters?|tokens?)\b"
    r"|\b(?:limited to|maximum|max\.?|at most|no more than|up to)\s+\d+|\bone-line\b"
    r"|(?<![\d一二三四五十])[\d一二三四五十]++\s*个?字",
    _I,
)
_JSON = re.compile(r"\bjson\b[^\n]{0,80}(?:\bonly\b|format|object|array|schema|:)|\{\s*\"\w+\"\s*:", _I)
_SECTION = re.compile(r"^(?:#{1,6} .{2,60}|\*\*[^*\n]{2,40}\*\*:?|\[[A-Z][^\]\n]{2,60}\]|<[A-Z][\w ]+>)[ \t]*$", _M)
_FILLED = re.compile(r"^[A-Z][\w ]{1,30}[:：] ?\S", _M)
_OPEN_END = re.compile(r".{0,60}\w['\"*)]*[:：]\**|#{1,6} .{2,40}|<[A-Z][\w ]+>")
_OPTION = re.compile(r"^[ \t]*\(?([A-E])[.)] ", _M)
_BLANK = re.compile(r"\$[A-Z]{4,}\b|\[\[?(?:the_)?[a-z_]{4,}\]?\]|<your[ _][^>]*>|\[\[\w+\]\]")
_AGENT = re.compile(r"^[ \t]*(Thought|Action|Action Input|Observation|Final Answer)[ \t]*:", _M)
_HOLE = re.compile(r"<\|?fim[_-]|<(?:PRE|SUF|MID)>|\{\{\s*FILL|\[BLANK\]|<\|cursor\|>", _I)
# A paragraph of its own at the end about this reply alone; "always" would make it a wish of the user's.
_REPLY_LANGUAGE = re.compile(
    r"\n[^\S\n]*\n(?:please )?(?:reply|respond|answer) in [^\W\d_][\w ()-]{1,40}[.!]?\s*\Z", _I
)
_ACKNOWLEDGED = re.compile(r"\s*(?:ok|okay|understood|got it|sure|noted|ready|acknowledged)\b", _I)
_TOOL_RESULT = re.compile(r"\s*\[[^\]\n]{3,200}\][^\n]{0,20}:")


class ClientMessage(NamedTuple):
    """A message as the model reads it, and the words in it that somebody said; None where nobody did."""

    message: Message
    words: str | None


class _Block(NamedTuple):
    """An element such as <context> ... </context>, by its place in a text; `inner` is what is between the tags."""

    name: str
    start: int
    end: int
    inner: str


HasLogged = Callable[[str], bool]


def find_task(request: ChatRequest, chat: ChatInput, has_logged: HasLogged) -> str | None:
    """The kind of task that a client set with this request, None for a user's turn.

    `metadata`: the client names it. `examples`: a few-shot prompt, none of whose replies `has_logged` knows.
    `conversation`: about a dialogue, such as its title. `prompt`: any other template.
    """
    if request.metadata and request.metadata.get("task"):
        return "metadata"
    replies = [message.content for message in chat.messages if message.role == "assistant"]
    if len(replies) >= 2 and _are_examples(chat, replies) and not any(map(has_logged, replies)):
        return "examples"
    text, system = _clip(chat.messages[-1].content), _clip(chat.instructions or "")
    message, words = split_message(chat.messages[-1], chat.instructions or "")
    if words is None:
        return "prompt"
    if words != message.content and not _HOLE.search(text) and not _has_history(text):
        return None
    if _score(request, system, text, is_first=not replies) < _ENOUGH:
        return None
    return "conversation" if _has_transcript(text) or _is_about_dialogue(text + system[:600]) else "prompt"


def is_task(text: str) -> bool:
    """Whether a message by itself is a task that a client set, and nobody's words."""
    message = Message("user", text)
    request = ChatRequest.model_validate({"model": "", "messages": [{"role": "user", "content": text}]})
    return bool(text.strip()) and find_task(request, ChatInput([message], None), lambda _reply: False) is not None


def split_messages(chat: ChatInput, has_logged: HasLogged) -> list[ClientMessage]:
    """Each message with its words: without what a client puts around them, and none for examples and file listings."""
    sent = [split_message(message, chat.instructions or "") for message in chat.messages]
    unsaid = set(chat.examples) | _find_setup(chat, has_logged)
    for index, (message, words) in enumerate(sent[:-1]):
        if message.role == "user" and words is None:
            unsaid |= {index, index + 1} if sent[index + 1].message.role == "assistant" else {index}
    unsaid.discard(len(sent) - 1)
    return [ClientMessage(each.message, None if index in unsaid else each.words) for index, each in enumerate(sent)]


def split_message(message: Message, system: str) -> ClientMessage:
    """A message and its words.

    Repetitions of the system message, an editor's state, retrieved context and a closing demand for a language are cut.
    """
    if message.role != "user":
        return ClientMessage(message, message.content)
    text = _without_repeated_instructions(message.content, system) or message.content
    text = _REPLY_LANGUAGE.sub("", text) or text
    blocks = _blocks(text)
    quoted = [block for block in blocks if _WORDS.fullmatch(block.name) and block.inner.strip()]
    is_wrapped = len(blocks) > len(quoted) or re.search(r"^#{1,6} ", _without(text, quoted), re.MULTILINE)
    if quoted and is_wrapped:
        return ClientMessage(message, "\n".join(block.inner.strip() for block in quoted))
    words = _without(text, [block for block in blocks if _MACHINE.fullmatch(block.name)])
    if words != text and (not words.strip() or _TOOL_RESULT.match(words)):
        return ClientMessage(message, None)
    return ClientMessage(message, message.content if words == message.content else words.strip())


def _score(request: ChatRequest, system: str, text: str, *, is_first: bool) -> int:
    """How many signs of a task the request shows: by its last message, or by the system message where that counts more.

    After a dialogue, only the form of an agent, or a demand about that dialogue, makes a task.
    """
    prose, transcript = _prose(text), _has_transcript(text)
    is_json = request.response_format is not None and request.response_format.type != "text"
    by_form = 3 * (len(set(_AGENT.findall(f"{text}\n{system}"))) >= 3) + 3 * bool(_HOLE.search(text))
    if not is_first and not _is_about_dialogue(prose):
        return by_form
    by_text = 2 * (transcript or _has_transcript(system)) + _count_demands(prose) + _count_slots(text, prose)
    by_text -= bool(_FIRST_PERSON.search(prose)) * (1 if _SECTION.match(text) else 2)
    is_bare = len(prose.split()) <= 5 and bool(_PAYLOAD.search(text) or _blocks(text))
    by_system = 0
    if is_bare or _is_about_dialogue(system[:600]):
        by_system = _count_demands(system) + 2 * transcript + is_bare
    limit = request.max_completion_tokens or request.max_tokens or _SHORT_ANSWER + 1
    stops = [request.stop] if isinstance(request.stop, str) else request.stop or []
    by_request = is_json + (limit <= _TINY_ANSWER) + (limit <= _SHORT_ANSWER)
    return by_form + by_request + any(stop.strip().endswith(":") for stop in stops) + max(by_text, by_system)


def _count_slots(text: str, prose: str) -> int:
    """How much of a template a text is: sections, options, blanks, several payloads, an end to be filled in."""
    slots = len(_SECTION.findall(text)) >= 2, len(set(_OPTION.findall(text))) >= 3, bool(_BLANK.search(prose))
    is_parted = len(_PAYLOAD.findall(text)) + len(_blocks(text)) >= 2 or len(re.findall(r"^-{3,}$", text, _M)) >= 2
    last_line = text.rstrip().rpartition("\n")[2].rstrip()
    open_end = bool(_OPEN_END.fullmatch(last_line)) * (2 if _FILLED.search(text) else 1)
    voice = bool(_THIRD_PERSON.search(prose)) + bool(_MACHINE_ADDRESS.search(prose))
    return sum(slots) + is_parted + open_end + voice


def _count_demands(text: str) -> int:
    """How exactly a text says what the answer must be: nothing else, how long, as JSON, about the dialogue."""
    demands = (_EXCLUSIVE.search(text), _LENGTH.search(text), _JSON.search(text))
    return sum(map(bool, demands)) + _is_about_dialogue(text)


def _is_about_dialogue(text: str) -> bool:
    return bool(_TASK_NOUN.search(text)) and bool(_DIALOGUE_NOUN.search(text))


def _has_transcript(text: str) -> bool:
    if _has_history(text) or (_ASKER_LINE.search(text) and _ANSWERER_LINE.search(text)):
        return True
    return all(re.search(rf'"role"\s*:\s*"{role}"', text) for role in ("user", "assistant"))


def _has_history(text: str) -> bool:
    return any(_HISTORY.search(block.name) for block in _blocks(text))


def _blocks(text: str) -> list[_Block]:
    """The closed elements of a text, in one pass, however many tags are never closed."""
    opened: dict[str, re.Match[str]] = {}
    blocks: list[_Block] = []
    for tag in _TAG.finditer(text):
        closes, name = tag.groups()
        if not closes:
            opened.setdefault(name, tag)
        elif start := opened.pop(name, None):
            blocks.append(_Block(name, start.start(), tag.end(), text[start.end() : tag.start()]))
    return blocks


def _without(text: str, blocks: Sequence[_Block]) -> str:
    parts, end = [], 0
    for block in sorted(blocks, key=lambda block: block.start):
        if block.start >= end:
            parts.append(text[end : block.start])
        end = max(end, block.end)
    return "".join((*parts, text[end:]))


def _prose(text: str) -> str:
    """What the message itself says: without blocks, and without a transcript but for the paragraph after it."""
    text = _PAYLOAD.sub(" ", _without(text, _blocks(text)))
    starts = [match.start() for label in (_ASKER_LINE, _ANSWERER_LINE) if (match := label.search(text))]
    if len(starts) < 2:
        return text
    _, gap, last = text.rstrip().rpartition("\n\n")
    is_labelled = _ASKER_LINE.search(last) or _ANSWERER_LINE.search(last)
    return text[: min(starts)] + ("" if is_labelled else gap + last)


def _are_examples(chat: ChatInput, replies: Sequence[str]) -> bool:
    """Whether all user messages fill one template, or all replies are bare labels that the system message demands."""
    words = [split_message(message, "").words for message in chat.messages if message.role == "user"]
    inputs = [text.strip() for text in words if text]
    common = _common_start(inputs), _common_start([text[::-1] for text in inputs])[::-1]
    if len(inputs) < 3:
        return False
    if any(len(part.strip()) >= 3 and re.search(r"[:：{\[<#]", part) for part in common):
        return True
    has_demand = chat.instructions is not None and _EXCLUSIVE.search(chat.instructions) is not None
    return has_demand and all(len(reply.split()) <= 3 for reply in replies) and len(" ".join(inputs).split()) > 15


def _common_start(texts: Sequence[str]) -> str:
    columns = takewhile(lambda column: len(set(column)) == 1, zip(*texts, strict=False))
    return "".join(column[0] for column in columns)


def _find_setup(chat: ChatInput, has_logged: HasLogged) -> set[int]:
    """The messages of pairs in which a client shows examples or files, and a reply of its own acknowledges them.

    Examples come first and with code; a bare acknowledgement divides them from the dialogue.
    """
    messages = chat.messages
    pairs = [
        index
        for index in range(len(messages) - 2)
        if messages[index].role == "user" and messages[index + 1].role == "assistant"
    ]
    setup = [index for index in pairs if _is_acknowledgement(messages[index + 1].content)]
    setup = [index for index in setup if not has_logged(messages[index].content)]
    if not setup:
        return set()
    examples = [index for index in pairs if index < setup[0]]
    has_examples = len(messages[setup[0] + 1].content.split()) <= 2 and any(
        "```" in messages[index + 1].content for index in examples
    )
    if not has_examples and not any(_is_document(messages[index].content) for index in setup):
        return set()
    if has_examples and not any(has_logged(messages[index].content) for index in examples):
        setup = [*examples, *setup]
    return {place for index in setup for place in (index, index + 1)}


def _is_acknowledgement(reply: str) -> bool:
    return len(reply.split()) <= 25 and _ACKNOWLEDGED.match(reply) is not None


def _is_document(text: str) -> bool:
    return "```" in text or "⋮" in text or len(text) > 2000


def _clip(text: str) -> str:
    return text if len(text) <= 2 * _CLIPPED else f"{text[:_CLIPPED]}\n{text[-_CLIPPED:]}"


def _without_repeated_instructions(text: str, system: str) -> str:
    """The text up to the paragraph from which on it repeats the system message, as clients do to remind the model."""
    for match in re.compile(r"\n\n").finditer(text, max(0, len(text) - len(system) - 2)):
        ending = text[match.end() :].strip()
        if len(ending) >= 80 and ending in system:
            return text[: match.start()]
    return text
