"""Rubric: learned criteria for segmenting dialogues, as a YAML file that is added to the prompt (SeCom, A.1).

`localmem eval segmentation --reflect` learns one; it can also be written or edited by hand.
"""

from dataclasses import asdict, dataclass
from pathlib import Path

import yaml
from pydantic import TypeAdapter

from localmem.files import parse, read_yaml, write_atomic

_CURE = "a rubric is YAML with items and examples"


@dataclass(frozen=True, slots=True)
class Example:
    """A badly segmented dialogue: people's segments, the model's, and the model's reflection on the difference."""

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
        """The text for the prompt; "" for an empty rubric."""
        return "\n\n".join([*self._criteria(), *map(_example_text, self.examples)])

    def save(self, path: Path) -> None:
        """Write the file in one step. Raises BadInput."""
        write_atomic(path, yaml.safe_dump(asdict(self), allow_unicode=True, sort_keys=False, width=120))

    @classmethod
    def load(cls, path: Path) -> "Rubric":
        """Read the file. Raises BadInput."""
        return parse(str(path), read_yaml(path, _CURE), TypeAdapter(cls), _CURE)

    def _criteria(self) -> list[str]:
        return ["Criteria:\n" + "\n".join(f"- {item}" for item in self.items)] if self.items else []


def _example_text(example: Example) -> str:
    return (
        f"Example:\n{example.dialogue}\n\nRight: {example.right}\nA wrong answer: {example.predicted}\n"
        f"What was wrong: {example.reflection}"
    )
