"""What is worked out from units, and that nothing is where a part is missing, unsure, rivalled or called off."""

from collections.abc import Sequence
from datetime import UTC, date, datetime

import pytest

from localmem.times.parts import Relevance
from localmem.times.workings import work_out, write_workings
from localmem.types import Unit

DAY = date(2025, 6, 2)


def unit(day: str, text: str) -> Unit:
    time = datetime.fromisoformat(day).replace(tzinfo=UTC)
    return Unit(day, f"User: {text}", text, "statement", "User", "s", (f"t{day[5:]}",), time, time)


BILL = unit("2025-03-04", "I sent the bill to the Legion yesterday, 4180 dollars.")
CHEQUE = unit("2025-05-13", "They paid! The cheque for the bill came yesterday.")
OVEN = unit("2025-04-20", "The oven people came. The new oven is in since yesterday.")
TRIP = unit("2025-03-05", "the trip is next Friday")
COPPER = unit("2025-05-01", "I had 1265 dollars in materials in that Legion bill, all that copper.")


@pytest.mark.parametrize(
    "question, units, result",
    [
        (
            "what date was the man meant to come?",
            [unit("2025-03-05", "the heating man cannot come before tomorrow week")],
            '"tomorrow week", said on 5 March 2025, is Thursday 13 March 2025',
        ),
        (
            "how long did they take to pay the bill?",
            [BILL, unit("2025-05-13", "The bill is paid, the cheque came yesterday, on Monday the 12th.")],
            "3 March to 12 May 2025 is 70 days (10 weeks)",
        ),
        (
            "how long was that from me sending it until they did?",
            [BILL, unit("2025-05-13", "They paid yesterday. The oven comes on 14 June. I earn 30 an hour.")],
            "3 March to 12 May 2025 is 70 days (10 weeks)",
        ),
        ("how long did they take to pay the bill?", [BILL, CHEQUE], "3 March to 12 May 2025 is 70 days (10 weeks)"),
        (
            "How many months did they take to pay the bill?",
            [BILL, CHEQUE],
            "3 March to 12 May 2025 is 70 days (2 months)",
        ),
        (
            "how many years did I drive for?",
            [unit("2025-01-01", "I started on the buses in 1974"), unit("2025-02-01", "I handed my badge in, in 2011")],
            "1974 to 2011 is 37 years",
        ),
        (
            "How many days ago did I send the bill?",
            [BILL],
            "3 March 2025 is 91 days (13 weeks) before today, 2 June 2025",
        ),
        ("what is left of the Legion bill, less the copper?", [BILL, COPPER], "$4,180 less $1,265 is $2,915"),
        (
            "how many rolls altogether?",
            [unit("2025-01-01", "the club wants 120 rolls"), unit("2025-02-01", "the chapel wants 85, same soft ones")],
            "120 and 85 are 205 together",
        ),
        (
            "how much did the fee grow?",
            [unit("2025-01-01", "the fee is 180k at 5%"), unit("2025-02-01", "the fee is 195k at 25 percent now")],
            "195,000 is 15,000 more than 180,000",
        ),
        (
            "The boots, the tent and the lamp, what do they come to, how much in all?",
            [
                unit("2025-01-01", "the boots were 80 pounds"),
                unit("2025-02-01", "bought a tent, 120 pounds, and the lamp was 15 pounds"),
            ],
            "£80, £120 and £15 are £215 together",
        ),
        (
            "when do I hand in the paper?",
            [unit("2025-05-01", "I hand in the paper two weeks before the congress. The congress is on 20 October.")],
            (
                '"two weeks before the congress", said on 1 May 2025, is Monday 6 October 2025, '
                "counted from 20 October 2025"
            ),
        ),
        (
            "what day is the last shift?",
            [unit("2025-05-01", "The last shift is the Friday before we fly."), unit("2025-05-02", "we go on 12 June")],
            '"the Friday before we fly", said on 1 May 2025, is Friday 6 June 2025, counted from 12 June 2025',
        ),
        (
            "which day do we get the motor?",
            [unit("2025-05-09", "The old one burned on Wednesday. A motor comes in ten days from that day.")],
            '"ten days from that day", said on 9 May 2025, is Saturday 17 May 2025, counted from 7 May 2025',
        ),
        (
            "on what date did the boys come?",
            [unit("2025-05-01", "the boys come on 12 May"), unit("2025-05-09", "they come a week later than planned")],
            '"a week later", said on 9 May 2025, is Monday 19 May 2025, counted from 12 May 2025',
        ),
        (
            "what date may I go below 18 again?",
            [
                unit("2025-05-01", "no deeper than 18 m for six weeks"),
                unit("2025-05-01", "those six weeks are from 28 April"),
            ],
            "six weeks from 28 April 2025 is Monday 9 June 2025",
        ),
        (
            "which date will the motor arrive?",
            [unit("2025-05-09", "The motor burned on Wednesday. A new one comes in ten days from that day.")],
            '"ten days from that day", said on 9 May 2025, is Saturday 17 May 2025, counted from 7 May 2025',
        ),
        (
            "what date is the party?",
            [unit("2025-05-01", "the party is at Christmas, and on 3 May I am in Leeds")],
            '"Christmas", said on 1 May 2025, is Thursday 25 December 2025',
        ),
        (
            "what date is my second one?",
            [unit("2025-05-01", "I did not pass. There is another on 12 May. I still eat candy of Halloween.")],
            '"12 May", said on 1 May 2025, is Monday 12 May 2025',
        ),
        (
            "How much more per hour do I earn than at first?",
            [
                unit("2025-01-01", "I wash plates for 13.50 an hour, I send home 90 every month."),
                unit("2025-05-01", "they moved me to 16.40 from 1 June"),
            ],
            "16.40 is 2.90 more per hour than 13.50",
        ),
        (
            "the small bread of the two, what is the grand total?",
            [unit("2025-01-01", "the club wants 120 rolls"), unit("2025-02-01", "now the chapel wants 85, on the 8th")],
            "120 and 85 are 205 together",
        ),
        (
            "How much money did I lose with the ticket?",
            [
                unit("2025-01-01", "the ticket is 1,140"),
                unit("2025-02-01", "I gave the ticket back, 900 came from them"),
            ],
            "1,140 less 900 is 240",
        ),
        (
            "what age is the lady who sings?",
            [unit("2024-12-01", "my nan sings, she's seventy-one and runs about")],
            "71 years old on 1 December 2024, 71 or 72 on 2 June 2025",
        ),
        (
            "What age is my sister who sings?",
            [unit("2025-06-02", "my sister sings, she is 41 years old")],
            "41 years old on 2 June 2025",
        ),
        (
            "what date was the contract signed?",
            [unit("2025-05-28", "we signed the contract two weeks ago")],
            '"two weeks ago", said on 28 May 2025, is about 14 May 2025, 12 to 18 May 2025',
        ),
        (
            "what month is the wedding in?",
            [unit("2025-05-28", "the wedding is next month")],
            '"next month", said on 28 May 2025, is June 2025',
        ),
        (
            "How old is Kayla now?",
            [unit("2025-03-30", "my daughter Kayla, on the 27th of April, she's turning 24")],
            "24 on 27 April 2025, 24 years old on 2 June 2025",
        ),
        (
            "How often do I swim?",
            [unit("2025-03-30", "I swim on Mondays and Thursdays now")],
            '"Mondays and Thursdays", said on 30 March 2025, is every week on Monday and Thursday',
        ),
        (
            "How many times did I ride the ferry to Skye?",
            [
                unit("2025-03-02", "I rode the ferry to Skye yesterday"),
                unit("2025-04-02", "yesterday I rode the ferry to Skye again"),
            ],
            "at least 2 times, as far as you said when: 1 March 2025, 1 April 2025",
        ),
        (
            "How many nights do we stay at the lake?",
            [unit("2025-03-30", "we stay at the lake from the 3rd to the 10th of July")],
            "3 to 10 July 2025 is 7 nights",
        ),
        (
            "What is left to pay on the fence?",
            [unit("2025-03-30", "Jo owes me 900 for the fence"), unit("2025-04-30", "Jo paid 250 for the fence")],
            "900 less 250 is 650",
        ),
        (
            "What was the date two weeks after Dad moved?",
            [unit("2025-03-30", "Dad moved yesterday")],
            "two weeks after 29 March 2025 is Saturday 12 April 2025",
        ),
        (
            "An welchem Datum wurde das Knie operiert?",
            [unit("2025-10-06", "Das Knie wird am Freitag operiert.")],
            '"Freitag", said on 6 October 2025, is Friday 10 October 2025 (10. Oktober 2025)',
        ),
        (
            "How old was Kayla when she moved out?",
            [
                unit("2025-03-30", "Kayla was born on 27 April 2001"),
                unit("2025-04-30", "Kayla moved out in October 2024"),
            ],
            "born on 27 April 2001, 23 years old in October 2024",
        ),
        (
            "Which came first, the bill or the oven?",
            [BILL, OVEN],
            "the bill (3 March 2025) came before the oven (19 April 2025)",
        ),
    ],
)
def test_results(question: str, units: Sequence[Unit], result: str) -> None:
    assert [working.text for working in work_out(question, DAY, units)] == [result]


def test_a_line_names_its_sources() -> None:
    lines = write_workings(work_out("how long did they take to pay the bill?", DAY, [BILL, CHEQUE]))
    assert lines == "worked out: 3 March to 12 May 2025 is 70 days (10 weeks) [turns t03-04, t05-13]"


@pytest.mark.parametrize(
    "question, units",
    [
        ("what did I have for lunch?", [BILL, CHEQUE]),
        ("how long did they take to pay the bill?", []),
        ("how long did they take to pay the bill?", [BILL]),
        ("what did the kit and the fees cost altogether?", [BILL]),
        (
            "when is the trip?",
            [unit("2025-03-05", "the trip is next Friday"), unit("2025-03-09", "we called it off, the trip")],
        ),
        ("how many days until the trip?", [unit("2025-03-05", "we leave on the trip one Friday, or on the Saturday")]),
        ("when will the brace come off?", [unit("2025-03-05", "I got the brace yesterday")]),
        ("when is the paper due?", [unit("2025-03-05", "the paper is due two weeks before the fair, on 20 April")]),
        ("how much over the price was it?", [unit("2025-01-01", "it is 489k"), unit("2025-02-01", "it went for 501")]),
        ("when does my pass expire?", [unit("2025-03-05", "I bought the pass yesterday")]),
        (
            "how many hours do I still have to do?",
            [unit("2025-01-01", "it is 800 hours and I've got 360"), unit("2025-02-01", "240 hours signed")],
        ),
        (
            "what do the clutch and the inverter cost together?",
            [
                unit("2025-01-01", "the inverter was 71,000 rand"),
                unit("2025-02-01", "the van needs a clutch, 9,800 at Kenilworth, 8,900 at the man in Epping"),
            ],
        ),
        (
            "how much for two collars and a bracelet together?",
            [unit("2025-01-01", "a collar is 3,200 shillings"), unit("2025-02-01", "a bracelet is 600 shillings")],
        ),
        ("How many times did I ride the ferry to Skye?", [unit("2025-03-02", "I rode the ferry to Skye yesterday")]),
        (
            "when is the party?",
            [unit("2025-03-05", "the party is a week after the fair, and the fair is one day soon")],
        ),
        ("what is the total of the bowl, the cup, the chews and the collar?", [BILL, COPPER]),
        ("what is dearer, the bill or the copper and the wire together, and by how much?", [BILL, COPPER]),
        (
            "what did the trip cost me, all in all?",
            [
                unit("2025-01-01", "the ticket is 1,140"),
                unit("2025-02-01", "I gave the ticket back, 900 came from them"),
            ],
        ),
        (
            "how much less is the fee now?",
            [
                unit("2025-01-01", "the fee is 72"),
                unit("2025-02-01", "the fee of the corner is 110 and we divide by two"),
            ],
        ),
        (
            "how much did I pay in total for the time without a bike?",
            [unit("2025-01-01", "I rent a bike, 65 a week"), unit("2025-02-01", "bought a bike for 1,099")],
        ),
        (
            "what did the teacher's job bring in all?",
            [unit("2025-01-01", "14 a head, they paid 500 deposit"), unit("2025-02-01", "he gave me 200 on top")],
        ),
        (
            "when it's my turn in June how much is the pot?",
            [unit("2025-05-01", "we are nine, my turn is 6 June")],
        ),
        (
            "on what date was the talk actually given?",
            [unit("2025-05-01", "I give the talk on 8 May")],
        ),
        (
            "who is left paying rent for the house?",
            [unit("2025-05-01", "rent of the house is 320"), unit("2025-05-02", "rent of the house is 340")],
        ),
        ("day that the news arrive", [unit("2025-05-08", "The result came on Tuesday. She is off from 12 June.")]),
        ("when did I write it?", [unit("2025-05-05", "I did not write it on 2 May, I had flu")]),
        (
            "when was the exam?",
            [unit("2025-05-01", "the exam is on 5 May"), unit("2025-05-09", "not on the 5th, they had a flood")],
        ),
        ("which day are we home?", [unit("2025-05-01", "Mum is 88 on 14 May. Out on the 5th, back a week later.")]),
        ("what date do we go to the lake?", [unit("2025-03-05", "it is not on Friday that we go to the lake")]),
        (
            "how long did it take to paint the hall?",
            [
                unit("2025-03-03", "I began to paint the hall yesterday."),
                unit("2025-03-08", "The hall is done since Friday, four days of paint in all."),
            ],
        ),
        (
            "how long may I practise daily?",
            [unit("2025-03-09", "I practise scales since 1 March. I am to practise less since 5 March.")],
        ),
        (
            "how much was the desk and how much the lamp?",
            [unit("2025-03-03", "The desk was 700 euros."), unit("2025-03-09", "The lamp cost 750 euros.")],
        ),
        (
            "what did we ask for in total and what did they say?",
            [unit("2025-03-03", "We asked for 7500 euros."), unit("2025-03-09", "They said 7900 euros.")],
        ),
    ],
)
def test_nothing_where_it_is_not_sure(question: str, units: Sequence[Unit]) -> None:
    assert work_out(question, DAY, units) == []


def test_with_relevance_the_clear_sentence_is_meant() -> None:
    def relevance(question: str, texts: Sequence[str]) -> list[float]:
        return [0.9 if "cheque" in text or "sent" in text else 0.2 for text in texts]

    units = [BILL, CHEQUE, OVEN]
    (working,) = work_out("how long did that take?", DAY, units, relevance)
    assert working.sources == ("t03-04", "t05-13")
    assert work_out("how long did that take?", DAY, units, lambda _, texts: [0.5] * len(texts)) == []
    assert work_out("how long did that take?", DAY, units[:2], lambda _, texts: [0.01] * len(texts)) == []


def test_with_relevance_what_recurs_is_worked_out_too() -> None:
    swim, sing = unit("2025-03-30", "I swim on Mondays and Thursdays now"), unit("2025-04-01", "Every Friday we sing")

    def relevance(question: str, texts: Sequence[str]) -> list[float]:
        return [0.9 if "swim" in text else 0.1 for text in texts]

    (working,) = work_out("How often do I swim?", DAY, [swim, sing, BILL], relevance)
    assert "every week on Monday and Thursday" in working.text


def test_with_relevance_only_what_is_relevant_moves_a_day() -> None:
    trip = unit("2025-03-05", "the trip is a week on Friday")
    lake = unit("2025-03-09", "Ben is back from his trip to the lake on the 30th")
    wedding = unit("2025-03-09", "the wedding is on the 30th")

    def scores(least: float) -> Relevance:
        return lambda _, texts: [0.9 if "week" in text else least for text in texts]

    (working,) = work_out("what date is the trip?", DAY, [trip, lake, wedding], scores(0.1))
    assert "14 March 2025" in working.text
    assert work_out("what date is the trip?", DAY, [trip, lake, wedding], scores(0.3)) == []


def test_how_long_something_has_lasted_is_not_worked_out_of_a_sentence_that_says_it() -> None:
    married = unit("2025-05-05", "I've been married 51 years come June 1st.")
    day = date(2025, 6, 12)
    assert work_out("How long have Maureen and I been married?", day, [married]) == []
    (working,) = work_out("How long is it since June 1st?", day, [married])
    assert working.text == "1 June 2025 is 11 days (about 2 weeks) before today, 12 June 2025"
