"""What recurs: its rule (RFC 5545) and its first occurrence, from a pattern's values and the day. Knows no words."""

from datetime import date

from localmem.times.days import WEEKDAY_CODES, months_from, nth_weekday, one_day
from localmem.times.languages.meanings import BLOCKED, DAY, MEANINGS, WEEK, WEEKEND, Frame, Meaning, Values


def find_recurring(values: Values, frame: Frame) -> Meaning | None:
    """What recurs, with its first occurrence on or after the day; `present` where words of the past name one day."""
    day = frame.day
    if values.get("present") and frame.tense == "past":
        return None
    if "ordinal" in values:
        return _monthly(values, day)
    if "weekday" in values:
        interval = f"INTERVAL={values['number']};" if values.get("number", 1) > 1 else ""
        first = one_day(day, (values["weekday"] - day.weekday()) % 7)
        return Meaning((first,), "day", repeats=f"FREQ=WEEKLY;{interval}BYDAY={WEEKDAY_CODES[values['weekday']]}")
    if "month" in values or "holiday" in values:
        return _yearly(values, frame)
    if "day" in values:
        return _repeat("day_of_month", values, Frame(day, "future"), f"FREQ=MONTHLY;BYMONTHDAY={values['day']}")
    days = {DAY: "DAILY", WEEKEND: "WEEKLY;BYDAY=SA,SU", WEEK: "WEEKLY;BYDAY=MO,TU,WE,TH,FR"}
    allowed = {DAY: range(7), WEEKEND: range(5, 7), WEEK: range(5)}[values["period"]]
    first = next(one_day(day, offset) for offset in range(7) if (day.weekday() + offset) % 7 in allowed)
    return Meaning((first,), "day", repeats=f"FREQ={days[values['period']]}")


def _monthly(values: Values, day: date) -> Meaning:
    months = [months_from(day.year, day.month + offset).first for offset in range(14)]
    days = [nth_weekday(month.year, month.month, values["weekday"], values["ordinal"]) for month in months]
    first = next(candidate for candidate in days if candidate and candidate.first >= day)
    return Meaning((first,), "day", repeats=f"FREQ=MONTHLY;BYDAY={values['ordinal']}{WEEKDAY_CODES[values['weekday']]}")


def _yearly(values: Values, frame: Frame) -> Meaning | None:
    coming = Frame(frame.day, "future")
    if "holiday" in values:
        code = values["holiday"]
        if code > 1231:
            return BLOCKED
        rule = f"BYMONTH={code // 100};BYMONTHDAY={code % 100}"
        return _repeat("holiday", values, coming, f"FREQ=YEARLY;{rule}")
    month = f"FREQ=YEARLY;BYMONTH={values['month']}"
    if "day" in values:
        return _repeat("date", values, coming, f"{month};BYMONTHDAY={values['day']}")
    return _repeat("month", values, coming, month)


def _repeat(meaning: str, values: Values, coming: Frame, rule: str) -> Meaning | None:
    first = MEANINGS[meaning](values, coming)
    return first and first._replace(repeats=rule)


def join_weekly(first: Meaning, second: Meaning, day: date | None) -> Meaning | None:
    """Two weekdays that recur as one rule; with the days between them, from `day` on, for "Mondays through Fridays"."""
    rules = [meaning.repeats.rpartition("BYDAY=") for meaning in (first, second)]
    if rules[0][0] != rules[1][0] or not rules[0][0].startswith("FREQ=WEEKLY"):
        return None
    codes = [code for _, _, days in rules for code in days.split(",")]
    following = min(first, second, key=lambda meaning: meaning.readings)
    if day:
        start, end = (WEEKDAY_CODES.index(code) for code in (codes[0], codes[-1]))
        codes = list(WEEKDAY_CODES[start : end + 1])
        if start <= day.weekday() <= end:
            following = first._replace(readings=(one_day(day),))
    joined = rules[0][0] + "BYDAY=" + ",".join(codes)
    return following._replace(repeats=joined)
