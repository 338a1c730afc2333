"""An LLM behind one or more servers of any engine.

Prompts are trimmed, routed to adapters and sent in parallel here. What an engine lacks is done otherwise: one of some
options is asked for as JSON, and JSON that no server enforces is checked and asked for once more. The other modules of
this package hold the engines' protocols and the HTTP client.
"""

import json
import threading
from collections.abc import Collection, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

from localmem.batching import result_or_error, results_or_raise
from localmem.errors import BadReply, LLMUnavailable
from localmem.llm.adapters import warn_of_changes
from localmem.llm.base import (
    Ability,
    CallPiece,
    Pause,
    alternate,
    check,
    check_json,
    check_room,
    fit,
    required_abilities,
    route,
)
from localmem.llm.remote import schema_check
from localmem.llm.remote.endpoints import Endpoint, Endpoints, NewProtocol, new_detector, session_headers
from localmem.llm.remote.openai_wire import (
    CHOICE_FIELD,
    AnswerChoice,
    Response,
    WireUsage,
    answer_limit,
    choice_schema,
    finish,
    join_tool_calls,
    logprob_fields,
    read_choice,
    stop_string,
    weigh_schema_choice,
)
from localmem.llm.remote.server_client import OwnServer, ServerClient
from localmem.llm.remote.token_counts import json_texts
from localmem.llm.tokenizer import ChatTokenizer, template_fields, tool_schemas
from localmem.types import Choice, Completion, JsonSchema, Message, Prompt

# A prompt of n bytes has at most n tokens, plus a few of the template; a prompt below that need not be counted.
_TEMPLATE_TOKENS = 512
_MESSAGE_TOKENS = 32
_JSON_TOKENS = 24  # around an option that is asked for as JSON


class RemoteLLM:
    """The model that the servers at `urls` serve under `name`.

    `tokenizer` is a folder with the model's tokenizer, `context_length` the user's wish. `new_protocol` says how to
    speak with a server; without it the server is asked, and vLLM gets `priorities` if they are set. With `server`, a
    server of ours, a request that does not reach it waits for its restart. At most `concurrency` prompts of one
    `generate` run at a time; `timeout` is in seconds, for one answer.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        name: str,
        tokenizer: Path | None = None,
        context_length: int | None = None,
        api_key: str | None = None,
        server: OwnServer | None = None,
        new_protocol: NewProtocol | None = None,
        priorities: bool = False,
        concurrency: int = 64,
        timeout: float = 600.0,
    ) -> None:
        self.name = name
        self._tokenizer = ChatTokenizer(tokenizer) if tokenizer else None
        self._concurrency = concurrency
        self._adapters: Mapping[str, str] = {}
        self._guard = threading.Lock()
        self.endpoints = Endpoints(
            [
                Endpoint(
                    ServerClient(url, api_key=api_key, server=server, timeout=timeout),
                    new_protocol or new_detector(name, priorities=priorities),
                    tokenizer=self._tokenizer,
                    context_length=context_length,
                )
                for url in ([urls] if isinstance(urls, str) else urls)
            ]
        )

    @property
    def context_length(self) -> int:
        return self.endpoints.ask("", lambda endpoint: endpoint.context_length)

    @property
    def abilities(self) -> Collection[Ability]:
        return self.endpoints.ask("", lambda endpoint: endpoint.capabilities.abilities)

    def check(self, prompt: Prompt) -> None:
        check(prompt, self.abilities)
        check_room(prompt, self.context_length)

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        attempt = partial(result_or_error, self._complete)
        if len(prompts) < 2:
            return results_or_raise(list(map(attempt, prompts)))
        workers = min(self._concurrency, len(prompts))
        pool = ThreadPoolExecutor(workers, thread_name_prefix="backbone")
        try:
            return results_or_raise(list(pool.map(attempt, prompts)))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def stream(self, prompt: Prompt) -> Generator[str, None, Completion]:
        *others, last = self.endpoints.order(prompt.user)
        for endpoint in others:
            started = False
            try:
                with closing(self._stream_from(endpoint, prompt)) as pieces:
                    while True:
                        piece = next(pieces)
                        started = started or not isinstance(piece, Pause)
                        yield piece
            except StopIteration as end:
                completion: Completion = end.value
                return completion
            except LLMUnavailable as error:
                self.endpoints.leave_out(endpoint, error)
                if started:
                    raise
        return (yield from self._stream_from(last, prompt))

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return self.endpoints.ask("", lambda endpoint: endpoint.counter.count_texts(texts)) if texts else []

    def load_adapter(self, name: str, path: Path) -> None:
        """Loads a LoRA adapter, in a folder that the servers can read, for prompts called `name` or `name/...`.

        Raises BadSettings where the engine loads none.
        """
        warn_of_changes(path, self._tokenizer.template_sha256 if self._tokenizer else None)
        served = [endpoint.protocol.load_adapter(name, path) for endpoint in self.endpoints]
        with self._guard:
            self._adapters = {**self._adapters, name: served[0]}

    def is_healthy(self) -> bool:
        """Whether a server answers now; takes at most two seconds for each and starts nothing."""
        return any(endpoint.client.is_healthy(2.0) for endpoint in self.endpoints)

    def prefix_cache(self) -> tuple[int, int] | None:
        """Tokens that the servers looked up in their prefix caches so far, and hits; None if they do not count."""
        counts = [count for endpoint in self.endpoints if (count := endpoint.protocol.prefix_cache())]
        return (sum(looked_up for looked_up, _ in counts), sum(hits for _, hits in counts)) if counts else None

    def close(self) -> None:
        for endpoint in self.endpoints:
            endpoint.client.close()

    # -- one prompt on one server --------------------------------------------------------------------------------------

    def _complete(self, prompt: Prompt) -> Completion:
        return self.endpoints.ask(prompt.user, lambda endpoint: self._complete_at(endpoint, prompt))

    def _complete_at(self, endpoint: Endpoint, prompt: Prompt) -> Completion:
        able = endpoint.capabilities
        if isinstance(prompt.format, Choice) and able.choices == "schema":
            return self._choose_by_schema(endpoint, prompt, prompt.format.options)
        if isinstance(prompt.format, JsonSchema) and not able.enforces_schema:
            return self._complete_checked(endpoint, prompt, prompt.format)[0]
        completion, answer = self._ask(endpoint, prompt)
        if isinstance(prompt.format, Choice):
            option, choices = read_choice(prompt, prompt.format.options, answer, end=endpoint.protocol.end)
            return replace(completion, text=option, finish="stop", choices=choices, logprobs=())
        if not completion.tool_calls:
            check_json(prompt, completion.text, is_cut=completion.finish == "length")
        return completion

    def _ask(self, endpoint: Endpoint, prompt: Prompt) -> tuple[Completion, AnswerChoice]:
        """The server's answer, as it is."""
        fitted, trimmed, counted = self._fit(endpoint, prompt)
        body = self._body(endpoint, fitted, stream=False)
        response: Response = endpoint.protocol.chat(prompt.name, body, session_headers(prompt.user))
        self._learn(endpoint, prompt, counted, response.usage)
        answer = response.choices[0]
        calls, logprobs = tuple(answer.tool_calls or ()), tuple(answer.logprobs or ())
        usage, reason = response.usage.usage(), finish(answer.finish_reason)
        stop = stop_string(answer.stop_reason)
        return Completion(answer.content or "", reason, usage, None, trimmed, calls, logprobs, stop), answer

    def _choose_by_schema(self, endpoint: Endpoint, prompt: Prompt, options: tuple[str, ...]) -> Completion:
        able = endpoint.capabilities
        limit = _JSON_TOKENS + max(len(json.dumps(option)) for option in options)
        form = JsonSchema(choice_schema(options))
        extra = {**prompt.extra, **(logprob_fields() if able.logprobs else {})}
        request = replace(prompt, format=form, max_tokens=limit, stop=(), extra=extra)
        check(prompt, able.abilities)
        if able.enforces_schema:
            completion, answer = self._ask(endpoint, request)
            check_json(request, completion.text)
        else:
            completion, answer = self._complete_checked(endpoint, request, form)
        option = str(json.loads(completion.text)[CHOICE_FIELD])
        choices = weigh_schema_choice(options, option, answer.tokens) if answer.tokens else None
        return replace(completion, text=option, finish="stop", choices=choices, logprobs=())

    def _complete_checked(
        self, endpoint: Endpoint, prompt: Prompt, form: JsonSchema
    ) -> tuple[Completion, AnswerChoice]:
        """An answer whose schema is checked here; one that does not follow it is asked for once more."""
        request = schema_check.with_schema_text(prompt, form.schema)
        text, problem = "", ""
        for _ in range(2):
            completion, answer = self._ask(endpoint, request)
            text = schema_check.json_part(completion.text)
            problem = schema_check.find_problem(text, form.schema)
            if not problem:
                return replace(completion, text=text), answer
            if completion.finish == "length" and form.may_be_cut:
                return replace(completion, text=schema_check.json_part(completion.text, is_cut=True)), answer
            if completion.finish == "length":
                check_json(prompt, text)
            request = schema_check.repair_prompt(request, completion.text, problem)
        raise BadReply(
            f"prompt {prompt.name!r} was answered {text[:200]!r} twice outside its schema ({problem}); use a server "
            "that enforces schemas, or a larger model"
        )

    def _stream_from(self, endpoint: Endpoint, prompt: Prompt) -> Generator[str, None, Completion]:
        is_checked = isinstance(prompt.format, JsonSchema) and not endpoint.capabilities.enforces_schema
        if isinstance(prompt.format, Choice) or is_checked:  # decided at the end, so there is nothing to stream
            completion = self._complete_at(endpoint, prompt)
            yield completion.text
            return completion
        fitted, trimmed, counted = self._fit(endpoint, prompt)
        pieces: list[str] = []
        call_pieces: list[dict[str, object]] = []
        logprobs: list[dict[str, object]] = []
        reason: str | None = None
        stop = ""
        usage = WireUsage()
        body = self._body(endpoint, fitted, stream=True)
        with closing(endpoint.protocol.events(prompt.name, body, session_headers(prompt.user))) as events:
            for event in events:
                if isinstance(event, Pause):
                    yield event
                    continue
                usage = event.usage or usage
                for choice in event.choices[:1]:
                    reason = choice.finish_reason or reason
                    stop = stop_string(choice.stop_reason) or stop
                    for piece in choice.tool_calls or ():
                        call_pieces.append(piece)
                        yield CallPiece(piece)
                    logprobs += choice.logprobs or ()
                    if choice.content:
                        pieces.append(choice.content)
                        yield choice.content
        self._learn(endpoint, prompt, counted, usage)
        text, calls = "".join(pieces), join_tool_calls(call_pieces)
        if not calls:
            check_json(prompt, text, is_cut=reason == "length")
        return Completion(text, finish(reason), usage.usage(), None, trimmed, calls, tuple(logprobs), stop)

    def _body(self, endpoint: Endpoint, prompt: Prompt, *, stream: bool) -> dict[str, object]:
        model = route(self._adapters, prompt.name) or self.name
        return endpoint.protocol.body(prompt, alternate(prompt.messages), model=model, stream=stream)

    def _fit(self, endpoint: Endpoint, prompt: Prompt) -> tuple[Prompt, int, int]:
        """The prompt, trimmed to the server's context; the tokens that were cut; the uncorrected count, 0 if none."""
        check(prompt, endpoint.capabilities.abilities if required_abilities(prompt) else ())
        limited, counter = replace(prompt, max_tokens=answer_limit(prompt)), endpoint.counter
        if not counter.is_free and _surely_fits(limited, endpoint.context_length):
            return limited, 0, 0
        fields, tools = template_fields(prompt.extra), tool_schemas(prompt.extra)
        counted = 0

        def count(messages: Sequence[Message]) -> int:
            nonlocal counted
            counted = counter.count_messages(messages, fields, tools)
            return counter.correct(counted)

        fitted, trimmed = fit(limited, endpoint.context_length, count)
        return fitted, trimmed, counted

    def _learn(self, endpoint: Endpoint, prompt: Prompt, counted: int, usage: WireUsage) -> None:
        has_more = prompt.extra.get("tools") or any(message.fields for message in prompt.messages)
        if counted and not has_more:  # what tools and images cost says nothing about words
            endpoint.counter.learn(counted, usage.prompt_tokens)


def _surely_fits(prompt: Prompt, context_length: int) -> bool:
    texts = [message.content for message in prompt.messages]
    texts += json_texts(prompt.messages, tool_schemas(prompt.extra))
    most = sum(len(text.encode()) + _MESSAGE_TOKENS for text in texts)
    return _TEMPLATE_TOKENS + most + prompt.max_tokens <= context_length
