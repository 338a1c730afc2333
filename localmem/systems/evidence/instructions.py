"""Standing instructions: how users told the assistant to help them, and what they cannot take, by instructions.yaml.

Who asks for a text or for advice shares no word with "when you write for me, keep it short", said a month ago, and yet
needs it. English only. Pure functions; does not depend on how exchanges are found or ranked before.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path

from pydantic import BaseModel

from localmem.files import read_yaml
from localmem.systems.evidence.ranking import lift_exchanges
from localmem.systems.evidence.units import STATEMENT
from localmem.types import Hit, Unit

# Added to the log-odds that an exchange answers. Chosen on the scenarios of authors m, n, p, q, u and w.
_LIFT = 2.0
_LATEST = 2000  # statements that are looked at
_FEW = 5  # instructions that are ranked, the latest ones


class _Table(BaseModel):
    help: str
    way: str
    patterns: tuple[str, ...]


def latest_instructions(statements: Iterable[Unit]) -> list[Unit]:
    """The first few of the statements, which stand the latest first, that hold an instruction."""
    return list(islice(filter(holds_instruction, islice(statements, _LATEST)), _FEW))


def holds_instruction(unit: Unit) -> bool:
    """Whether the user says in this unit how to be helped."""
    return unit.kind == STATEMENT and instructs(unit.text)


def lift_instructions(exchanges: Sequence[list[Hit]]) -> list[list[Hit]]:
    """The exchanges, best first, after those were lifted that hold an instruction."""
    return lift_exchanges(exchanges, (_LIFT * any(holds_instruction(hit.unit) for hit in hits) for hits in exchanges))


@lru_cache(maxsize=2 * _LATEST)
def instructs(text: str) -> bool:
    """Whether a text says how its writer is to be helped."""
    return _instruction().search(text.lower()) is not None


@cache
def _table() -> _Table:
    return _Table.model_validate(read_yaml(Path(__file__).with_suffix(".yaml")))


@cache
def _instruction() -> re.Pattern[str]:
    table = _table()
    words = {"<help>": table.help.replace(" ", ""), "<way>": table.way.replace("| ", "|")}
    pattern = "|".join(table.patterns)
    for name, alternatives in words.items():
        pattern = pattern.replace(name, alternatives)
    return re.compile(rf"\b(?:{pattern})")
