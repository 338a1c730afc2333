"""Rubric: what was learned about segmenting dialogues, as a file that joins the segmentation prompt (SeCom, A.1).

Knows how it is read, written and shown; `reflect` learns it. A person may write or edit one by hand: it is YAML.
"""

from dataclasses import asdict, dataclass
from pathlib import Path

import yaml
from pydantic import TypeAdapter

from localmem.files import parse, read_yaml, write_atomic

_CURE = "a rubric is YAML with items and examples"


@dataclass(frozen=True, slots=True)
class Example:
    """A dialogue that was segmented badly: as people cut it, as the model did, and what the model says to that."""

    dialogue: str
    right: str
    predicted: str
    reflection: str


@dataclass(frozen=True, slots=True)
class Rubric:
    """Criteria for good segments, and representative examples."""

    items: tuple[str, ...] = ()
    examples: tuple[Example, ...] = ()

    def text(self) -> str:
        """As the prompt shows it; "" when there is nothing to say."""
        return "\n\n".join([*self._criteria(), *map(_shown, self.examples)])

    def save(self, path: Path) -> None:
        """Write the file in one step. Raises BadInput."""
        write_atomic(path, yaml.safe_dump(asdict(self), allow_unicode=True, sort_keys=False, width=120))

    @classmethod
    def load(cls, path: Path) -> "Rubric":
        """Read the file. Raises BadInput."""
        return parse(str(path), read_yaml(path, _CURE), TypeAdapter(cls), _CURE)

    def _criteria(self) -> list[str]:
        return ["Criteria:\n" + "\n".join(f"- {item}" for item in self.items)] if self.items else []


def _shown(example: Example) -> str:
    return (
        f"Example:\n{example.dialogue}\n\nRight: {example.right}\nA wrong answer: {example.predicted}\n"
        f"What was wrong: {example.reflection}"
    )
