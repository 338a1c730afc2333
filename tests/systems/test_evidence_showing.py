"""What is shown of ranked exchanges within a budget of tokens."""

from datetime import UTC, datetime

from localmem.systems.evidence.showing import fit_budget
from localmem.systems.evidence.units import ANSWER, STATEMENT
from localmem.text.passages import estimate_tokens
from localmem.types import Hit, Unit

TIME = datetime(2026, 3, 5, tzinfo=UTC)
QUESTION = "How much is the rent?"
TOLD = "The rent is 700 a month. The kitchen has a window."


def hit(name: str, text: str, kind: str = STATEMENT) -> Hit:
    speaker = "Assistant" if kind == ANSWER else "User"
    text = f"{speaker}: {text}"
    return Hit(Unit(name, text, text, kind, speaker, "s", (name,), TIME, TIME), 0.5)


def exchanges(count: int, *, reply_first: bool = False) -> list[list[Hit]]:
    pairs = [
        [hit(f"{n}#u0", f"{TOLD} {n}"), hit(f"{n}#a0", f"You could ask the landlord. {n}", ANSWER)]
        for n in range(count)
    ]
    return [pairs[0][::-1], *pairs[1:]] if reply_first else pairs


def shown(hits: list[Hit]) -> list[str]:
    return [each.unit.id for each in hits]


def test_the_first_reply_comes_after_six_statements() -> None:
    statements = [f"{n}#u0" for n in range(8)]
    everything = fit_budget(exchanges(8), QUESTION, None, 600, with_replies=False)
    assert shown(everything) == [*statements[:6], "0#a0", *statements[6:]]
    assert shown(fit_budget(exchanges(2), QUESTION, None, 600, with_replies=False)) == ["0#u0", "1#u0", "0#a0"]
    assert shown(fit_budget([], QUESTION, None, 600, with_replies=False)) == []


def test_replies_that_are_asked_for_are_shown_with_their_statements() -> None:
    all_units = fit_budget(exchanges(2), QUESTION, None, 600, with_replies=True)
    assert shown(all_units) == ["0#u0", "0#a0", "1#u0", "1#a0"]
    best = fit_budget(exchanges(2, reply_first=True), QUESTION, None, 600, with_replies=False)
    assert shown(best) == ["0#a0", "0#u0", "1#u0"]


def test_the_last_statement_is_shown_with_the_sentences_that_share_most_with_the_question() -> None:
    long = hit(
        "9#u0", f"We had soup. {TOLD} Then the neighbours came over and we talked until the lights went out. {TOLD}"
    )
    room = estimate_tokens(long.unit.text) - 8
    (part,) = fit_budget([[long]], QUESTION, None, room, with_replies=False)
    assert "The rent is 700 a month." in part.unit.text
    assert "…" in part.unit.text
    assert estimate_tokens(part.unit.text) < estimate_tokens(long.unit.text)
    assert fit_budget([[long]], QUESTION, None, 20, with_replies=False) == []


def test_only_one_statement_is_shown_in_part() -> None:
    first, second = (hit(f"{n}#u0", " ".join([TOLD] * 8).replace("700", f"70{n}")) for n in range(2))
    room = estimate_tokens(first.unit.text) + estimate_tokens(second.unit.text) - 60
    assert shown(fit_budget([[first], [second], [second]], QUESTION, None, room, with_replies=False)) == [
        "0#u0",
        "1#u0",
    ]
