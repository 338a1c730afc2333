"""What a run is to measure: a plan, from options or a file, and the points that it comes to.

Knows no agents and no backbone; the names of systems and models are checked by who builds them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError, model_validator

from localmem.benchmark.latency.result import Load
from localmem.errors import BadInput, BadSettings
from localmem.files import read_yaml

Cache = Literal["cold", "warm"]
Measure = Literal["ttft", "tpot", "e2el"]


class Scripted(BaseModel):
    """A backbone that takes given times: seconds to the first word of an answer, and between its further words."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    first_token: float = Field(ge=0)
    per_token: float = Field(ge=0)


class Plan(BaseModel):
    """What to measure; unknown keys are errors. Every combination of the lists is a point."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    title: str = ""
    """What the run is for."""
    models: tuple[str, ...] = ()
    """Backbones, by their names in the manifest; none: the settings' own."""
    systems: tuple[str, ...] = ("exchange_retrieval",)
    """Memory systems."""
    scripted: Scripted | None = None
    """A backbone without weights, whose times are given."""
    users: PositiveInt | None = None
    """How many users there are, each with a memory of their own; default: as many as talk at once."""
    history: tuple[int, ...] = (10,)
    """Sessions that each user had held before."""
    exchanges: PositiveInt = 5
    """Turns of the user in each of those sessions."""
    concurrency: tuple[PositiveInt, ...] = (1, 2, 4)
    """Closed loop: how many talk at any time."""
    rate: tuple[PositiveFloat, ...] = ()
    """Open loop: turns that come in a second, whether or not the earlier ones are answered; instead of concurrency."""
    cache: tuple[Cache, ...] = ("warm",)
    """cold: nothing of a prompt is in the prefix cache. warm: what the user's earlier turns left there."""
    requests: PositiveInt = 120
    """Turns that are measured at each point, at least."""
    turns: int = Field(default=6, ge=2)
    """Turns of the user in each session."""
    answer: PositiveInt = 64
    """Tokens of a reply, at most."""
    warm_up: int = Field(default=2, ge=0)
    """Turns of each user that are thrown away before a point's first."""
    bare: bool = True
    """Send each turn's prompt once more, straight to the backbone."""
    ends: int = Field(default=8, ge=0)
    """How many sessions of a point are remembered when they are over, and that measured; the others are only over."""
    during_ends: bool = False
    """Measure each point once more while sessions are being remembered in the background."""
    goodput: Mapping[Measure, PositiveFloat] = {"ttft": 300.0, "e2el": 5000.0}
    """Milliseconds within which a request is a good one; it must keep to all of them."""
    seed: int = 0
    """Of texts and arrivals."""
    settings: Mapping[str, object] = Field(default_factory=dict)
    """Settings of localmem, as in a file of --config."""

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if not self.systems or not self.history or min(self.history) < 0:
            raise ValueError("name at least one system and one length of history, 0 or more")
        fewest = self.users or max(self.concurrency)
        if not self.rate and fewest < max(self.concurrency):
            raise ValueError(f"{fewest} users cannot talk {max(self.concurrency)} at once; raise users")
        return self

    @classmethod
    def load(cls, path: Path, given: Mapping[str, object]) -> "Plan":
        """A file's plan, with what was `given` in place of it. Raises BadInput and BadSettings."""
        planned = read_yaml(path)
        if not planned:
            raise BadInput(f"{path} is an empty plan; name at least its systems, as configs/bench/cpu.yaml does")
        return cls.of({**planned, **given}, f"{path}: ")

    @classmethod
    def of(cls, values: Mapping[str, object], place: str = "") -> "Plan":
        """Raises BadSettings, in one line."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise BadSettings(place + _explained(error)) from error

    def specs(self) -> "tuple[Spec, ...]":
        """The points, in the order in which they are measured."""
        return tuple(self._specs())

    def _specs(self) -> "Iterator[Spec]":
        for system in self.systems:
            for history in self.history:
                for load in self._loads():
                    for cache in self.cache:
                        users = self.users or load.concurrency or max(self.concurrency)
                        spec = Spec(system, load, history, cache, users)
                        yield spec
                        if self.during_ends:
                            yield Spec(system, load, history, cache, users, during_ends=True)

    def _loads(self) -> tuple[Load, ...]:
        if self.rate:
            return tuple(Load("open", rate=rate) for rate in self.rate)
        return tuple(Load("closed", concurrency=many) for many in self.concurrency)


@dataclass(frozen=True, slots=True)
class Spec:
    """One point to be measured."""

    system: str
    load: Load
    history: int
    cache: Cache
    users: int
    during_ends: bool = False

    @property
    def id(self) -> str:
        """Such as theanine/c8/h100/warm."""
        load = f"r{self.load.rate:g}" if self.load.kind == "open" else f"c{self.load.concurrency}"
        return "/".join((self.system, load, f"h{self.history}", self.cache, *(["ends"] if self.during_ends else [])))


def goodput_of(text: str) -> dict[str, float]:
    """`ttft:300,e2el:5000` in milliseconds. Raises BadInput."""
    try:
        pairs = [part.split(":") for part in text.split(",")]
        return {name: float(value) for name, value in pairs}
    except ValueError as error:
        raise BadInput(f"{text!r} is no objective; write it like ttft:300,e2el:5000 (milliseconds)") from error


def _explained(error: ValidationError) -> str:
    problem = error.errors()[0]
    name = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        near = get_close_matches(str(problem["loc"][-1]), list(Plan.model_fields), n=1, cutoff=0.5)
        return f"a plan has no key {name!r}" + (f" (did you mean {near[0]!r}?)" if near else "")
    told = problem["msg"].removeprefix("Value error, ")
    return f"{name!r} cannot be {problem['input']!r}: {told}" if name else told
