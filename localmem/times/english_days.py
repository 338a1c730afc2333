"""Rules of English times that name a day and not its month: the 9th, Friday the 14th, the 1st of the month."""

from collections.abc import Mapping, Sequence

from localmem.times.days import months_from, valid_day
from localmem.times.english_scene import SOON, Reading, Rule, Scene, reading_of
from localmem.times.english_words import words_beside
from localmem.types import DateRange, TimeSpan

_SHORT = 12  # words of a reply that needs no month
_BRIEF = 5  # words of a clause that says little but a day
_ELSEWHERE = 60  # days to a month that was named long before, for a ninth to be the nearest one


def _month_days(scene: Scene, day: int, months: int) -> list[DateRange]:
    """A day of the month in the months about the day's."""
    around = (months_from(scene.day.year, scene.day.month + offset).first for offset in range(-months, months + 1))
    return [found for month in around if (found := valid_day(month.year, month.month, day))]


def day_of_this_month(scene: Scene) -> Reading | None:
    """The 8th of this month, of next month; the 1st of the month."""
    shifts = scene.all("LAST", "THIS", "NEXT")
    if not shifts:
        return reading_of(scene.choose(_month_days(scene, scene.day_of_month, 2), patience=0), "day")
    month = months_from(scene.day.year, scene.day.month + shifts[0].value).first
    found = valid_day(month.year, month.month, scene.day_of_month)
    return reading_of([found] if found else [], "day")


def weekday_and_day(scene: Scene) -> Reading | None:
    """Friday the 14th: of the nearest month where the 14th is a Friday."""
    weekday = scene.value("WEEKDAY")
    days = [option for option in _month_days(scene, scene.day_of_month, 7) if option.first.weekday() == weekday]
    if (named := _by_context(scene)) is not None and named in days:
        return Reading((named,), "day")
    return reading_of(scene.choose(days, patience=SOON), "day")


def bare_day(scene: Scene) -> Reading | None:
    """The 21st: of the month that was named before, else by the tense."""
    digits = scene.phrase[-1].name == "NTH"
    follower = scene.after
    ends = follower is None or follower.kind in ".,-/"
    if not digits and (not ends or scene.before not in words_beside("days_before") or not scene.has("the")):
        return None
    if not scene.has("the") and scene.before not in words_beside("days_before") and not _is_end_of_range(scene):
        return None
    if not ends and follower is not None and not _may_follow_day(follower.text, scene.before):
        return None
    if (same := _repeat_of_last(scene)) is not None:
        return Reading((same,), "day")
    if open_days := _in_open_months(scene):
        return reading_of(open_days, "day")
    days = _month_days(scene, scene.day_of_month, 2)
    if follower is not None and follower.text in ("was", "were"):  # "the 20th was a mistake" may lie ahead
        scene = scene.with_tense("unclear")
    nearest = scene.choose(days, patience=0)
    named = _by_context(scene)
    if named is None or named in nearest:
        return reading_of(nearest if named is None else [named], "day")
    against = scene.day > named.last if scene.tense == "future" else scene.day < named.first
    far = abs((named.first - scene.day).days) > _ELSEWHERE and not _is_close(scene)
    if far or (scene.tense in ("past", "future") and against):
        return reading_of(nearest, "day")
    return reading_of([named] if _is_close(scene) else sorted({named, *nearest}), "day")


def _is_end_of_range(scene: Scene) -> bool:
    """Whether it is one of two days of the month: "between 15th and 20th", "15th to 20th"."""
    after, before = scene.words[scene.end : scene.end + 2], scene.words[max(0, scene.start - 2) : scene.start][::-1]
    pairs = [after, before]
    return any(
        len(pair) == 2 and pair[1].name == "NTH" and pair[0].text in ("to", "and", "-", "till", "through", "or")
        for pair in pairs
    )


def this_day(scene: Scene) -> Reading | None:
    """This coming 25th, on this 15th: the next one."""
    ends = scene.after is None or scene.after.kind in ".,-/" or _may_follow_day(scene.after.text, "")
    if not ends or not (scene.has("coming") or scene.before in words_beside("days_before")):
        return None
    days = [option for option in _month_days(scene, scene.day_of_month, 2) if option.first >= scene.day]
    return reading_of(days[:1], "day")


def _in_open_months(scene: Scene) -> list[DateRange]:
    """The day in each of the months that the last day without a month may be of: "not the 20th; the 27th now"."""
    last = [*scene.named, *scene.same_text][-1:]
    if not last or len(last[0].readings) == 1 or not _is_bare_day(last[0]):
        return []
    months = [days.first for days in last[0].readings]
    return [days for month in months if (days := valid_day(month.year, month.month, scene.day_of_month))]


def _is_bare_day(span: TimeSpan) -> bool:
    same_day = len({days.first.day for days in span.readings}) == 1
    return same_day and span.words[-3:-2].isdigit() and span.words.split()[-1][:-2].isdigit()


def _may_follow_day(text: str, before: str) -> bool:
    """Whether a word may stand behind "the 21st": not "floor", and a noun only after a preposition."""
    if "'" in text or text in words_beside("days_after"):
        return True
    return before in words_beside("days_before") and text not in words_beside("counted")


def _repeat_of_last(scene: Scene) -> DateRange | None:
    """The day named last in this text where this is its number: "Monday last, the 15th"."""
    for span in scene.same_text[-1:]:
        days = span.readings[0]
        if (
            len(span.readings) == 1
            and not span.repeats
            and days.first == days.last
            and days.first.day == scene.day_of_month
        ):
            return days
    return None


def _month_spans(spans: Sequence[TimeSpan]) -> list[TimeSpan]:
    """The spans that name a month."""
    names = words_beside("month_names")
    return [
        span
        for span in spans
        if len(span.readings) == 1 and not span.repeats and names & set(span.words.lower().replace("-", " ").split())
    ]


def _by_context(scene: Scene) -> DateRange | None:
    """The day in the month that was named last."""
    spans = _month_spans([*scene.named, *scene.same_text])
    first = spans[-1].readings[0].first if spans else None
    return valid_day(first.year, first.month, scene.day_of_month) if first else None


def _is_close(scene: Scene) -> bool:
    """Whether the month was named in the same sentence, or just before a short reply."""
    spans = _month_spans(scene.same_text)
    if spans:
        at = scene.words[scene.start].start
        return not any(word.kind == "." for word in scene.words if spans[-1].at < word.start < at)
    words = len(scene.words)
    is_reply = words <= _SHORT or (words <= 2 * _SHORT and _clause_length(scene) <= _BRIEF)
    return is_reply and bool(_month_spans(scene.named[-1:]))


def _clause_length(scene: Scene) -> int:
    """The words between the signs about the match."""
    start, end, words = scene.start, scene.end, scene.words
    while start and words[start - 1].kind not in ".,":
        start -= 1
    while end < len(words) and words[end].kind not in ".,":
        end += 1
    return end - start


RULES: Mapping[str, Rule] = {rule.__name__: rule for rule in (day_of_this_month, weekday_and_day, bare_day, this_day)}
