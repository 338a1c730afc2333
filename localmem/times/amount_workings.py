"""Sums, differences and what is left, each from the amounts that units name, or nothing.

Knows no dates, and nothing of how units were found.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial

from localmem.times.amounts import convert, write_amount
from localmem.times.cues import count_of_amounts, period_of, rate_of, tells
from localmem.times.lines import line_of
from localmem.times.parts import Parts
from localmem.times.questions import listings
from localmem.times.unit_parts import Figure
from localmem.types import Working

_FAR_APART = 13  # times: amounts that differ as much are hardly of one kind, as "489k" and "501" are not


def total_of(parts: Parts) -> Working | None:
    """A sum: of as many amounts as the question counts, of one for each thing that it lists, or of two units."""
    if (count := count_of_amounts(parts.question)) and (working := _counted_total(parts, count)):
        return working
    if tells("counts things", parts.question):
        return None
    tied_units = {figure.unit.id for figure in filter(parts.is_tied, parts.figures)}
    is_open = parts.lists_more or len(tied_units) > 2 or any(figure.is_each for figure in parts.figures)
    return listed_total_of(parts) or (None if is_open else _sum(parts, _two_figures(parts)))


def _counted_total(parts: Parts, count: int) -> Working | None:
    """The sum of as many amounts as the question says, where the units name no other: "the three jabs"."""
    figures = parts.fittest(list(filter(parts.is_relevant, parts.figures)))
    return _sum(parts, figures) if len(figures) == count and len({figure.unit.id for figure in figures}) > 1 else None


def listed_total_of(parts: Parts) -> Working | None:
    """The sum of one amount for each thing that the question lists, by its own words."""
    sums = (_sum(parts, _figures_of(parts, things)) for things in listings(parts.question))
    return next((working for working in sums if working), None)


def _figures_of(parts: Parts, things: Sequence[frozenset[str]]) -> list[Figure]:
    """The amount of each thing, by its words; none if one of them has none, or may have several."""
    chosen: dict[tuple[str, int], Figure] = {}
    for words in things:
        figures = [figure for figure in parts.figures if parts.may_be(figure, words) and parts.is_relevant(figure)]
        figure = parts.clearest(figures, lambda figure: figure.amount, words)
        if figure is None or parts.has_other_price(figure):
            return []
        if any(words & other.clause and other.amount.value != figure.amount.value for other in figures):
            return []
        chosen[figure.unit.id, figure.amount.at] = figure
    return list(chosen.values()) if len(chosen) == len(things) else []


def _are_contested(parts: Parts, figures: Sequence[Figure]) -> bool:
    """Whether more than one of the units names another amount near, which might be meant."""
    return (
        sum(any(_is_near(figure, other) for other in parts.figures if other not in figures) for figure in figures) > 1
    )


def _is_near(figure: Figure, other: Figure) -> bool:
    is_near = other.sentence in figure.nearby or figure.sentence in other.nearby
    return (
        other.unit.id == figure.unit.id and is_near and other.amount.value != figure.amount.value and not other.is_each
    )


def _sum(parts: Parts, figures: Sequence[Figure]) -> Working | None:
    if len(figures) < 2 or len({figure.dimension for figure in figures if figure.dimension}) > 1:
        return None
    if any(figure.is_each for figure in figures) or not all(map(parts.is_tied, figures)):
        return None
    if len({figure.period for figure in figures}) > 1 and not period_of(parts.question):
        return None
    if _are_contested(parts, figures) or len({tells("is money back", figure.sentence) for figure in figures}) > 1:
        return None
    write, values = _same_unit(figures)
    *amounts, last = map(write, values)
    return line_of(f"{', '.join(amounts)} and {last} are {write(sum(values, Fraction(0)))} together", *figures)


def _balance(parts: Parts) -> Working | None:
    """What is still owed after payments: of one debt or price, and no other amounts than what was paid of it."""
    figures = sorted(filter(parts.is_relevant, parts.figures), key=lambda figure: figure.unit.time)
    payments = [figure for figure in figures if tells("says a payment", figure.lead)]
    debts = [figure for figure in figures if figure not in payments]
    if len(debts) != 1 or not payments or not all(map(parts.is_tied, figures)):
        return None
    if not tells("says a debt", debts[0].sentence) and {figure.unit.id for figure in payments} != {debts[0].unit.id}:
        return None
    write, values = _same_unit([*debts, *payments])
    rest = values[0] - sum(values[1:])
    result = f"{write(values[0])} less {' and '.join(map(write, values[1:]))} is {write(rest)}"
    is_one = len({figure.dimension for figure in figures if figure.dimension}) < 2
    return line_of(result, *debts, *payments) if rest > 0 and is_one else None


def difference_of(parts: Parts) -> Working | None:
    """What one amount is more than another, or what is left of it."""
    if parts.wish.remains and (balance := _balance(parts)):
        return balance
    if tells("has numbers of its own", parts.question):
        return None
    figures = _two_figures(parts)
    if not figures or _are_contested(parts, figures) or (parts.wish.remains and not parts.is_settled(figures)):
        return None
    if not any(map(parts.is_named, figures)) or not all(map(parts.is_tied, figures)):
        return None
    if figures[0].is_each != figures[1].is_each:
        return None
    if tells("asks for a discount", parts.question) and any(tells("says a share", figure.nearby) for figure in figures):
        return None
    write, values = _same_unit(figures)
    less, more = sorted(values)
    difference, rate = write(more - less), rate_of(parts.question)
    text = f"{write(more)} is {difference} more{rate} than {write(less)}"
    if parts.wish.remains or tells("takes away", parts.question):
        text = f"{write(more)} less {write(less)} is {difference}{rate}"
    return line_of(text, *figures) if less < more and more - less < _FAR_APART * less else None


def _two_figures(parts: Parts) -> list[Figure]:
    """The amounts of two units that are asked for; none if a unit has several, or a third unit may be meant."""
    by_unit: dict[str, list[Figure]] = {}
    for figure in filter(parts.is_relevant, parts.figures):
        by_unit.setdefault(figure.unit.id, []).append(figure)
    chosen = {unit: parts.figure_of(_of_period(parts, figures)) for unit, figures in by_unit.items()}
    likeliest = [chosen[unit] or max(figures, key=parts.score) for unit, figures in by_unit.items()]
    figures = parts.rank(likeliest, parts.words, lambda figure: figure.unit.id)
    if len(figures) > 2 and not parts.leads(figures[1], figures[2], parts.words):
        return []
    is_sure = len(figures) > 1 and all(chosen[figure.unit.id] for figure in figures[:2])
    return figures[:2] if is_sure and _are_alike(*figures[:2]) else []


def _of_period(parts: Parts, figures: list[Figure]) -> list[Figure]:
    """The amounts of a unit for the time that the question names a price for, or else those of no single thing."""
    period = period_of(parts.question)
    of_period = [figure for figure in figures if period and figure.period == period]
    return of_period or [figure for figure in figures if not figure.is_each] or figures


def _are_alike(figure: Figure, other: Figure) -> bool:
    """Whether two amounts may be of one kind: of one unit or none, and prices of one time or none."""
    is_mixed = any(one.is_count and two.dimension for one, two in ((figure, other), (other, figure)))
    dimensions, periods = {figure.dimension, other.dimension, ""}, {figure.period, other.period, ""}
    return len(dimensions) < 3 and len(periods) < 3 and not is_mixed


def _same_unit(figures: Sequence[Figure]) -> tuple[Callable[[Fraction], str], list[Fraction]]:
    """The values in the unit of the first figure that has one, or of what all of them count, and how to write them."""
    unit = next((figure.amount.unit for figure in figures if figure.amount.unit), "")
    values = [convert(figure.amount, unit) for figure in figures]
    counted = {figure.amount.nouns[:1] for figure in figures}
    noun = unit or (" ".join(counted.pop()) if len(counted) == 1 else "")
    in_cents = not noun and any(figure.amount.words[-3:-2] == "." for figure in figures)
    return partial(write_amount, unit=noun, in_cents=in_cents), values
