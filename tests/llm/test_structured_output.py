"""Structured output: bounded schemas, and fallbacks for answers outside their format but not for failures."""

from collections import Counter
from collections.abc import Sequence

import pytest

from localmem.errors import BadReply, LLMError, LLMUnavailable, PartialFailure
from localmem.llm.scripted import ScriptedLLM
from localmem.llm.structured_output import (
    answer_format,
    array,
    boolean,
    generate_usable,
    integer,
    record,
    string,
)
from localmem.types import Completion, JsonSchema, Message, Prompt


def _prompt(name: str, texts: str) -> Prompt:
    return Prompt(name, (Message("user", texts),), format=JsonSchema({"type": "object"}))


def _llm(*broken: str, error: LLMError | None = None) -> ScriptedLLM:
    def script(prompt: Prompt) -> str:
        if error and prompt.messages[0].content in broken:
            raise error
        return '{"cut' if prompt.messages[0].content in broken else "{}"

    return ScriptedLLM(script)


def _texts(llm: ScriptedLLM, *texts: str) -> tuple[list[str | None], Counter[str]]:
    fallbacks: Counter[str] = Counter()
    answers = generate_usable(llm, [_prompt("a/b", text) for text in texts], fallbacks)
    return [answer.text if answer else None for answer in answers], fallbacks


def test_an_answer_outside_its_format_is_none_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    assert _texts(_llm("2"), "1", "2", "3") == (["{}", None, "{}"], Counter({"a/b": 1}))
    assert "a/b" in caplog.text


def test_one_prompt_and_all_prompts_outside_their_format() -> None:
    assert _texts(_llm("1"), "1") == ([None], Counter({"a/b": 1}))
    assert _texts(_llm("1", "2"), "1", "2") == ([None, None], Counter({"a/b": 2}))


def test_an_error_that_all_prompts_share_is_as_one() -> None:
    class Alike(ScriptedLLM):
        def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
            raise BadReply("cut short")

    fallbacks: Counter[str] = Counter()
    assert generate_usable(Alike(lambda _: "{}"), [_prompt("a/b", "1"), _prompt("a/c", "2")], fallbacks) == [None, None]
    assert fallbacks == {"a/b": 1, "a/c": 1}


def test_a_backbone_that_fails_is_not_a_fallback() -> None:
    error = LLMUnavailable("no server answers")
    with pytest.raises(LLMUnavailable):
        _texts(_llm("1", error=error), "1")
    with pytest.raises(PartialFailure):
        _texts(_llm("1", error=error), "1", "2")


def test_no_prompts_ask_nothing() -> None:
    assert _texts(ScriptedLLM(lambda _: pytest.fail("nothing is to be asked"))) == ([], Counter())


def test_an_answer_is_an_object_with_all_its_fields_and_no_other() -> None:
    form = answer_format(names=array(string(9), 2), line=integer(1, 4), sure=boolean(), note=string(5, empty=True))
    assert form.schema == {
        "type": "object",
        "properties": {
            "names": {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 9}, "maxItems": 2},
            "line": {"type": "integer", "minimum": 1, "maximum": 4},
            "sure": {"type": "boolean"},
            "note": {"type": "string", "minLength": 0, "maxLength": 5},
        },
        "required": ["names", "line", "sure", "note"],
        "additionalProperties": False,
    }


def test_records_nest() -> None:
    inner = record(line=integer(1, 2))
    assert array(inner, 3)["items"] == inner
