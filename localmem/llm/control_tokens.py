"""Text that no chat template can take for its own marks: what is remembered, pasted or recalled stays words.

A tokenizer turns "<|im_start|>" into the one token that begins a message, wherever it stands, so a remembered sentence
could open a system message. An invisible space behind the first character keeps such marks readable and makes them
plain text. The patterns cover the templates of the models in the manifest and their relatives, because a server encodes
with a tokenizer of its own (`scripts/check_tokenizers` tries them on every tokenizer that a package ships); where the
tokenizer is in this process, `own_marks` covers all of its own.
"""

import re
from collections.abc import Iterable, Mapping

_INVISIBLE = "\u200b"  # zero width space: str.strip and the trim filter of chat templates keep it
_MARKS = re.compile(
    r"""
    <(?!\u200b)(?=[|｜][^<>\n]{0,60}[|｜]>               # <|im_end|>, <|start_header_id|>, <｜User｜>
       |\|[^<>\n|]{1,30}>|[^<>\n|]{1,30}\|>    # <|turn>, <turn|>
       |/?(?:s|unk|pad|bos|eos|mask|cls|sep|image|audio)>
       |/?(?:start|end)_of_\w{1,20}>|<?/?SYS>
       |/?(?:think|tools?|tool_calls?|tool_responses?|functions?)>
       |(?:repo_?name|filename|file_sep|gh_stars|empty_output|(?:issue|jupyter|fim|vision)_\w{1,20})>
       |(?:unused|extra_id_|reserved_)\w{1,20}>|(?:image|audio|video)_\w{1,20}>|SPECIAL_\d{1,4}>
    )
    |\[(?=/?(?:INST|SYS|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_\w{1,12}|IMG\w{0,6}|ARGS|CALL_ID|THINK|PREFIX|MIDDLE|SUFFIX
       |CLS|SEP|MASK|UNK|PAD|control_\d{1,4})\])
    """,
    re.VERBOSE,
)


def neutralize(text: str, marks: re.Pattern[str] = _MARKS) -> str:
    """The text with an invisible space inside each mark of a chat template; equal where there is none."""
    return marks.sub(lambda match: match[0] + _INVISIBLE, text)


def neutralize_fields(value: object) -> object:
    """JSON whose strings are neutralised, such as the arguments of a tool's call."""
    if isinstance(value, str):
        return neutralize(value)
    if isinstance(value, Mapping):
        return {name: neutralize_fields(each) for name, each in value.items()}
    return [neutralize_fields(each) for each in value] if isinstance(value, list | tuple) else value


def own_marks(tokens: Iterable[str]) -> re.Pattern[str]:
    """Matches the first character of each of these tokens, for `neutralize`; those of one character are letters."""
    marks = (f"{re.escape(token[0])}(?={re.escape(token[1:])})" for token in sorted(tokens) if len(token) > 1)
    return re.compile("|".join(marks) or "(?!)")
