"""What clients send on their own account is recognised, and what a person says is not, by real requests of clients."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from localmem.server.client_tasks import find_task, split_messages
from localmem.server.schemas import ChatInput, ChatRequest, parse_chat
from localmem.types import Prompt
from tests.growth import assert_linear, least_seconds
from tests.server.conftest import LiveServer

CASES = yaml.safe_load((Path(__file__).parent / "client_requests.yaml").read_text(encoding="utf-8"))


def parse(body: Mapping[str, Any]) -> tuple[ChatRequest, ChatInput]:
    request = ChatRequest.model_validate({"model": "localmem", **body})
    return request, parse_chat(request)


def never(_text: str) -> bool:
    """Nothing was said before."""
    return False


def stored_words(body: Mapping[str, Any], logged: Collection[str] = ()) -> list[str]:
    """The words of the user that may be stored of a request, where these were logged before."""
    request, chat = parse(body)
    if find_task(request, chat, logged.__contains__):
        return []
    sent = split_messages(chat, logged.__contains__)
    return [words for message, words in sent if message.role == "user" and words is not None]


def answer_json(_prompt: Prompt) -> str:
    return "{}"


def answer_fine(_prompt: Prompt) -> str:
    return "Fine."


def user(text: str, **more: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}], **more}


def test_there_are_enough_requests_of_enough_clients() -> None:
    tasks = [case for case in CASES if not case["stored"]]
    assert len(tasks) >= 40
    assert len(CASES) - len(tasks) >= 20
    assert len({case["client"].split(",")[0] for case in CASES}) >= 20


def test_line_breaks_are_read_in_linear_time() -> None:
    text = "My dog is Rex." + "\n" * 1_000
    assert stored_words(user(f"{text}x")) == [f"{text}x"]
    assert stored_words(user(f"{text}Reply in French.")) == ["My dog is Rex."]
    assert_linear(lambda count: stored_words(user("My dog is Rex." + "\n" * count + "x")), 2_000)


def test_an_endless_number_is_read_in_linear_time() -> None:
    assert stored_words(user("1" * 1_000)) == ["1" * 1_000]
    assert_linear(lambda count: stored_words(user("1" * count)), 4_000)


def test_an_endless_tag_is_read_as_fast_as_an_endless_word() -> None:
    tag = least_seconds(lambda count: stored_words(user("<" + "a" * count)), 100_000)
    assert tag < 5 * least_seconds(lambda count: stored_words(user("a" * count)), 100_000)


@pytest.mark.parametrize("case", CASES, ids=[case["client"] for case in CASES])
def test_what_is_stored_of_a_clients_request(case: dict[str, Any]) -> None:
    assert stored_words(case["body"]) == case["stored"]


def test_the_server_stores_what_the_cases_say(live: LiveServer) -> None:
    for case in CASES:
        before = len(live.runtime.store.sessions("me"))
        live.llm.answer = answer_json if "response_format" in case["body"] else answer_fine
        answer = live.http().post("/v1/chat/completions", json={"model": "localmem", **case["body"]})
        assert answer.status_code == 200, (case["client"], answer.text)
        words = [text for log in live.log()[before:] for text in log if not text.startswith(">")]
        assert words == case["stored"], case["client"]
        live.http().post("/v1/sessions/end")


KINDS = [
    ("metadata", user("Hello.", metadata={"task": "title_generation"})),
    ("prompt", user("Question: How many legs has a spider?\nAnswer:", stop=["Question:"])),
    ("conversation", user('Name this chat.\nJSON format: {"title": "x"}\n<chat_history>\nHi\n</chat_history>')),
    (None, user("Hello.", metadata={"session": "work"})),
]


@pytest.mark.parametrize(("kind", "body"), KINDS)
def test_the_kind_of_a_task(kind: str | None, body: dict[str, object]) -> None:
    assert find_task(*parse(body), never) == kind


GAME = [
    {"role": "system", "content": "Guess my animal. Reply with only yes or no."},
    {"role": "user", "content": "Does it live in my garden by the old pear tree?"},
    {"role": "assistant", "content": "No"},
    {"role": "user", "content": "Does it bark when the postman comes to our house?"},
    {"role": "assistant", "content": "Yes"},
    {"role": "user", "content": "Is it my neighbour's spaniel Bruno?"},
]


def test_a_dialogue_that_was_held_here_is_no_example() -> None:
    body = {"messages": GAME}
    assert find_task(*parse(body), never) == "examples"
    assert len(stored_words(body, {"No", "Yes"})) == 3


def test_a_document_that_the_user_pasted_here_is_no_setup() -> None:
    pasted = "My diary:\n```\nMonday: rain\n```"
    body = {
        "messages": [
            {"role": "user", "content": pasted},
            {"role": "assistant", "content": "Ok, noted."},
            {"role": "user", "content": "What was Monday like?"},
        ]
    }
    assert stored_words(body, {pasted}) == [pasted, "What was Monday like?"]


PERSONS = [
    "User: hi\nAssistant: hello\n\nThis is what I got. What do you think of my manners?",
    "I need the title of the conversation with Ann in my diary, only the title, five words.",
    "The user clicks the button and nothing happens. Why?",
    "Please answer in no more than 50 words: what is a fjord?",
    '{"name": "Minka", "age": 3}\n\nIs this valid JSON?',
    "Translate to German: Only the brave return.",
    "TODO:\n- milk\n- eggs\n\nWhat am I missing for pancakes?",
    "A) Oslo B) Bergen, which is nicer in May?",
    "### Recipe\nFlour, eggs.\n### Steps\nMix them.\n\nCan you shorten it?",
    "<p>Hello</p> <b>there</b> how do I centre this?",
    "Summarise our conversation so far.",
    "```\nTraceback (most recent call last):\n  KeyError: 'x'\n```\n```\nd = {}\n```\nwhy",
    "Write a poem.\n\nTitle: Rain\nLength: short",
]


@pytest.mark.parametrize("text", PERSONS)
def test_a_person_is_stored(text: str) -> None:
    assert stored_words(user(text)) == [text]


def test_a_long_message_is_judged_by_its_ends() -> None:
    filler = "The tide came in and went out again. " * 3000
    head = '### Task:\nName it.\n### Output:\nJSON format: { "title": "x" }'
    assert stored_words(user(f"{head}\n<chat_history>\n{filler}\n</chat_history>")) == []
    assert stored_words(user(filler)) == [filler]
