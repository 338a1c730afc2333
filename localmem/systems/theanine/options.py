"""What a user can set about Theanine. The values stand in configs/systems/theanine.yaml; knows no parts.

The first eight are the paper's (j, k, n and its ablations and variants), the others are ours.
"""

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, PositiveInt, ValidationError

from localmem.errors import BadSettings
from localmem.files import validation_line


class Options(BaseModel):
    """All options of the system; none has a default here."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)

    j: PositiveInt
    """Associative memories: units of the graph that a new one is compared with (Phase I-1)."""
    k: PositiveInt
    """Units found for the current dialogue (Phase II)."""
    n: PositiveInt
    """Timelines drawn for each of them (Phase II-1)."""
    relations: bool
    """Links are labelled by the LLM (Phase I-2), and none is made where it finds no relation."""
    reasoning: bool
    """The LLM explains before it labels."""
    linking: Literal["recent", "all"]
    """To which labelled units a new one is linked: the most recent of each component, or all."""
    refine: bool
    """The LLM rewrites each timeline for the current dialogue (Phase II-2)."""
    show: Literal["timelines", "shuffled", "nearest"]
    """What is shown: timelines, their units in random order, or as many units as they hold, by similarity."""
    seed: int
    """Of the drawing; the same seed and turn draw the same timelines."""
    query_turns: PositiveInt
    """Last turns of the dialogue that make up the query."""
    longest: PositiveInt
    """Units of a timeline that are shown."""
    origin_tokens: PositiveInt
    """Tokens of each origin dialogue that the labeller sees."""

    @classmethod
    def of(cls, values: Mapping[str, object]) -> "Options":
        """Options from settings. Raises BadSettings for a value that cannot be, a key too many or one too few."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise BadSettings(validation_line(error, cls, "option")) from error
