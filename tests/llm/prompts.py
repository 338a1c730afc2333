"""Builders of prompts and completions for tests."""

from collections.abc import Generator, Mapping, Sequence

from localmem.types import Choice, Completion, Format, FreeText, JsonSchema, Message, Prompt


def ask(
    text: str = "Tell me a story about a lighthouse.",
    *,
    name: str = "test/ask",
    max_tokens: int = 16,
    temperature: float = 0.0,
    seed: int | None = 0,
    stop: Sequence[str] = (),
    choice: Sequence[str] = (),
    schema: Mapping[str, object] | None = None,
    extra: Mapping[str, object] | None = None,
) -> Prompt:
    form: Format = FreeText()
    if choice:
        form = Choice(tuple(choice))
    if schema is not None:
        form = JsonSchema(schema)
    return Prompt(
        name,
        (Message("system", "You are a helpful assistant."), Message("user", text)),
        max_tokens=max_tokens,
        temperature=temperature,
        seed=seed,
        stop=tuple(stop),
        format=form,
        extra=dict(extra or {}),
    )


def collect(stream: Generator[str, None, Completion]) -> tuple[list[str], Completion]:
    """A stream's pieces and what it returns."""
    pieces: list[str] = []
    while True:
        try:
            pieces.append(next(stream))
        except StopIteration as end:
            completion: Completion = end.value
            return pieces, completion
