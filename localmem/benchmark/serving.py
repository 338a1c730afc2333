"""Users of a running `localmem serve` over HTTP, each with a streaming client, and how many of them it can serve.

Knows the server by its URL and keys only, as any client does. Figures are those of `latency.result`; a first token is
timed at the client. Writes the requests in the format of AIPerf's records (profile_export.jsonl), which its plots read.
"""

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from random import Random
from time import perf_counter, sleep, time_ns

import httpx

from localmem.benchmark.latency.client import user_texts
from localmem.benchmark.latency.result import Sample, compute_figures, time_per_output_token
from localmem.benchmark.recipes import ServeRecipe

Json = Mapping[str, object]
Measure = Callable[[int], "UserCount"]

_TIMEOUT = 600.0  # seconds for one answer


@dataclass(frozen=True, slots=True)
class Service:
    """A server that clients talk to: its URL without /v1, a key for each user, and the model that they name."""

    url: str
    keys: Sequence[str]
    model: str = "localmem"


@dataclass(frozen=True, slots=True)
class UserCount:
    """A measurement with this many users. `within` is the share of turns within all limits, `passed` whether enough.

    `bare` are the figures of as many users of the backbone alone, None where that was not measured.
    """

    users: int
    within: float
    passed: bool
    figures: Mapping[str, float]
    bare: Mapping[str, float] | None = None


def talk(service: Service, recipe: ServeRecipe, users: int, name: str) -> tuple[list[Sample], float]:
    """Let the first `users` keys talk at once; returns their turns and the seconds that took."""
    gate = threading.Barrier(users)
    clients = [_Client(service, number, recipe, f"{name}/user{number:03d}", gate) for number in range(users)]
    threads = [threading.Thread(target=client.run, daemon=True) for client in clients]
    start = perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [sample for client in clients for sample in client.samples], perf_counter() - start


def judge(samples: Sequence[Sample], seconds: float, users: int, recipe: ServeRecipe) -> UserCount:
    """Whether enough turns were within the limits."""
    limits: dict[str, float] = {str(name): limit for name, limit in recipe.limits.items()}
    counted = [sample for sample in samples if not sample.warm_up]
    figures = compute_figures(counted, seconds, limits)
    within = sum(_is_within(sample, limits) for sample in counted) / max(len(counted), 1)
    return UserCount(users, round(within, 4), within >= recipe.share, figures)


def most_users(measure: Measure, limit: int) -> list[UserCount]:
    """Measurements up to the most users that keep the limits, in their order.

    Doubles the users until a number fails, then halves the distance between the last good and the first bad one.
    """
    counts: list[UserCount] = []
    good, bad, users = 0, limit + 1, 1
    while good + 1 < bad:
        counts.append(measure(users))
        if counts[-1].passed:
            good = users
        else:
            bad = users
        users = min(2 * users, limit) if bad > limit else (good + bad) // 2
    return counts


def largest(counts: Iterable[UserCount]) -> int:
    """The most users that kept the limits; 0 if a single one did not."""
    return max((count.users for count in counts if count.passed), default=0)


def to_aiperf(samples: Iterable[Sample], began_ns: int) -> Iterator[Json]:
    """One record for each request; `began_ns` is the Unix time at which samples count 0 seconds."""
    for number, sample in enumerate(samples):
        start = began_ns + round(sample.sent * 1e9)
        times = {
            "time_to_first_token": (sample.ttft_ms, "ms"),
            "request_latency": (sample.e2el_ms, "ms"),
            "inter_token_latency": (time_per_output_token(sample), "ms"),
            "input_sequence_length": (sample.input_tokens, "tokens"),
            "output_sequence_length": (sample.output_tokens, "tokens"),
        }
        yield {
            "metadata": {
                "session_num": number,
                "x_request_id": f"{sample.session}/{sample.turn}",
                "conversation_id": sample.session,
                "turn_index": sample.turn - 1,
                "request_start_ns": start,
                "request_end_ns": start + round(sample.e2el_ms * 1e6),
                "worker_id": sample.user,
                "record_processor_id": "localmem",
                "benchmark_phase": "warmup" if sample.warm_up else "profiling",
                "was_cancelled": False,
            },
            "metrics": {
                name: {"value": value, "unit": unit}
                for name, (value, unit) in times.items()
                if value is not None and not sample.error
            },
            "error": {"message": sample.error, "type": "RequestError"} if sample.error else None,
        }


class _Client:
    """One user: sends the whole dialogue with each turn, as chat clients do, and pauses after each reply."""

    def __init__(
        self, service: Service, number: int, recipe: ServeRecipe, session: str, gate: threading.Barrier
    ) -> None:
        self.samples: list[Sample] = []
        self._recipe, self._session, self._gate, self._model = recipe, session, gate, service.model
        self._random = Random(f"{recipe.seed}/{session}")  # noqa: S311  # pauses, not a secret
        self._messages: list[dict[str, str]] = []
        headers = {"Authorization": f"Bearer {service.keys[number]}"}
        self._client = httpx.Client(base_url=service.url, headers=headers, timeout=_TIMEOUT, trust_env=False)

    def run(self) -> None:
        recipe = self._recipe
        texts = user_texts(0, 1, recipe.seed, self._session)
        self._gate.wait()
        start = perf_counter()
        with self._client:
            sleep(recipe.think * self._random.random())
            for number, text in enumerate(islice(texts, recipe.warm_up + recipe.turns), start=1):
                sample = self._send(text, number, start)
                self.samples.append(replace(sample, warm_up=number <= recipe.warm_up))
                sleep(recipe.think * (0.5 + self._random.random()))

    def _send(self, text: str, number: int, start: float) -> Sample:
        sent = perf_counter()
        messages = [*self._messages, {"role": "user", "content": text}]
        user = self._session.rpartition("/")[2]
        sample = Sample("serve", "turn", user, self._session, number, round(sent - start, 4), None, 0.0)
        try:
            times, reply, usage = self._stream(messages)
        except (httpx.HTTPError, ValueError, KeyError) as error:
            elapsed = 1000 * (perf_counter() - sent)
            return replace(sample, e2el_ms=round(elapsed, 4), error=f"{type(error).__name__}: {error}")
        self._messages = [*messages, {"role": "assistant", "content": reply}]
        end = perf_counter()
        first, last = (times[0], times[-1]) if times else (end, end)
        return replace(
            sample,
            ttft_ms=round(1000 * (first - sent), 4),
            e2el_ms=round(1000 * (last - sent), 4),
            itl_ms=tuple(round(1000 * (later - earlier), 4) for earlier, later in pairwise(times)),
            input_tokens=usage.get("prompt_tokens", 0),
            output_tokens=usage.get("completion_tokens", 0),
        )

    def _stream(self, messages: Sequence[Mapping[str, str]]) -> tuple[list[float], str, Mapping[str, int]]:
        """The times of the pieces, the reply, and the usage. Raises ValueError for an error within the stream."""
        body = {"model": self._model, "messages": messages, "max_tokens": self._recipe.answer, "stream": True}
        times, pieces, usage = list[float](), list[str](), dict[str, int]()
        options = {"stream_options": {"include_usage": True}}
        with self._client.stream("POST", "/v1/chat/completions", json={**body, **options}) as response:
            if response.is_error:
                response.read()
                raise ValueError(f"{response.status_code}: {response.text[:200]}")
            for line in response.iter_lines():
                if not line.startswith("data: ") or line == "data: [DONE]":
                    continue
                event = json.loads(line.removeprefix("data: "))
                if "error" in event:
                    raise ValueError(event["error"]["message"])
                usage = event.get("usage") or usage
                if piece := "".join(choice["delta"].get("content") or "" for choice in event["choices"]):
                    times.append(perf_counter())
                    pieces.append(piece)
        return times, "".join(pieces), usage


def unix_ns() -> int:
    """Now, for the times of AIPerf's records."""
    return time_ns()


def _is_within(sample: Sample, limits: Mapping[str, float]) -> bool:
    times = {"ttft": sample.ttft_ms, "tpot": time_per_output_token(sample) or 0.0, "e2el": sample.e2el_ms}
    return sample.error is None and all((times[name] or 0.0) <= limit for name, limit in limits.items())
