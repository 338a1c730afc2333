"""The reader: what it quotes, when it says that it does not know, and which turns it leaves to the backbone."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest

from localmem.chat.conversation import Conversation
from localmem.chat.reader import _LONGEST_REMINDER, Reader
from localmem.llm.scripted import ScriptedLLM
from localmem.memory import Memory
from localmem.retrieval.base import WordShare
from localmem.systems.evidence.dependents import SAID_BEFORE
from localmem.systems.evidence.units import ANSWER, STATEMENT, is_new, places, turn_units
from localmem.text.dialogue import dated_lines
from localmem.text.quotations import quotations
from localmem.turns.readings import CLOSEST, NOT_KNOWN, is_reading
from localmem.turns.reminders import without_reminder
from localmem.turns.utterances import adds_nothing, is_denial
from localmem.types import AddUnit, Change, Hit, JsonSchema, Recall, Session, Unit, Working
from tests.fakes import session

TODAY = date(2026, 6, 15)
SAID = datetime(2026, 3, 5, 9, tzinfo=UTC)
QUESTION = "What is my dog called?"


def unit(text: str, speaker: str = "User") -> Unit:
    kind = STATEMENT if speaker == "User" else ANSWER
    return Unit(text, f"{speaker}: {text}", text, kind, speaker, "s", (text,), SAID, SAID)


class Scorer:
    """Likely where a text holds the word; keeps what it was asked."""

    def __init__(self, word: str) -> None:
        self.word = word
        self.texts: list[str] = []

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        self.texts += texts
        return [0.95 if self.word in text.partition("[")[0] else 0.01 for text in texts]


def dialogue(question: str, *earlier: str) -> Session:
    """A dialogue of the user's and the assistant's turns, that ends with a question of today."""
    return session(*earlier, question, start=datetime(2026, 6, 15, 12, tzinfo=UTC))


def recall(*units: Unit) -> Recall:
    return Recall("memory", tuple(Hit(each, 0.5) for each in units))


def test_the_turn_of_the_likeliest_sentence_is_quoted_with_its_day_and_speaker() -> None:
    scorer = Scorer("Bruno")
    memory = recall(unit("I live in Lyon. My dog is called Bruno. He is old."), unit("Call him Rex.", "Assistant"))
    quoted = Reader(scorer).reply(dialogue(QUESTION), memory)
    assert quoted == 'On 5 March 2026 you said: "I live in Lyon. My dog is called Bruno. He is old."'
    assert scorer.texts[1] == "User: My dog is called Bruno. [I live in Lyon.]"
    reply = Reader(Scorer("Rex")).reply(dialogue("What name did you suggest for my dog?"), memory)
    assert reply == 'On 5 March 2026 I said: "Call him Rex."'


def test_turns_that_are_nearly_as_likely_are_quoted_beside_it() -> None:
    memory = recall(*(unit(f"{name} is mine.") for name in ("Bruno", "Rex", "Old Bruno", "Bruno of Kiel", "Bruno V")))
    quoted = Reader(Scorer("Bruno")).reply(dialogue(QUESTION), memory).splitlines()
    assert [line.partition('"')[2] for line in quoted] == [
        f'{name} is mine."' for name in ("Bruno", "Old Bruno", "Bruno of Kiel")
    ]


def test_of_a_long_turn_the_sentences_around_the_likeliest_are_quoted() -> None:
    far, near = "I live in Lyon, near the river and the old market, over the baker's shop. " * 4, "He barks."
    quoted = Reader(Scorer("Bruno")).reply(dialogue(QUESTION), recall(unit(f"{far}{near} He is Bruno. {near} {far}")))
    assert f'said: "{near} He is Bruno. {near}"' in quoted


class Words:
    """Finds the answer in the pieces of a text that are given, each with its share."""

    def __init__(self, **shares: float) -> None:
        self.shares = shares

    def find_words(self, query: str, texts: Sequence[str]) -> list[list[WordShare]]:
        return [
            [WordShare(text.index(word), text.index(word) + len(word), share) for word, share in self.shares.items()]
            for text in texts
        ]


def quote(memory: Recall, question: str = QUESTION, **shares: float) -> str:
    return Reader(Scorer("Bruno"), words=Words(**shares)).reply(dialogue(question), memory)


def test_of_a_sentence_that_says_more_the_clauses_that_answer_are_quoted() -> None:
    statement = unit("My dog was Rex, no sorry I mean Bruno, and he is old. He barks.")
    assert quote(recall(statement), Rex=0.1, Bruno=0.8) == 'On 5 March 2026 you said: "… no sorry I mean Bruno …"'
    assert quote(recall(statement), Rex=0.8, Bruno=0.1).endswith('"My dog was Rex, no sorry I mean Bruno …"')
    assert quote(recall(statement), Rex=0.3, Bruno=0.3).endswith('"My dog was Rex, no sorry I mean Bruno …"')
    assert quote(recall(statement), Rex=0.3, old=0.3).endswith(f'"{statement.key}"')
    assert quote(recall(statement), Bruno=0.3).endswith(f'"{statement.key}"')
    assert quote(recall(statement), "Is my dog called Bruno?", Bruno=0.9).endswith(f'"{statement.key}"')


def test_a_short_clause_is_quoted_with_those_beside_it_that_say_nothing_of_the_answer() -> None:
    statement = unit("Not Rex, Bruno, he barks at cats, and Rex was before him in the old house.")
    assert quote(recall(statement), Rex=0.1, Bruno=0.8).endswith('"… Bruno, he barks at cats …"')
    first, second = unit("It is Bruno the second, I think."), unit("Bruno, who barks.")
    lines = quote(recall(first, second), Bruno=0.9).splitlines()
    assert [line.partition('"')[2] for line in lines] == ['It is Bruno the second …"', 'Bruno, who barks."']


def test_clauses_without_a_verb_are_quoted_with_those_before_them_unless_these_say_something_else() -> None:
    question = "Where is my desk?"
    third = unit("The Bruno desk was at the wall, on the third floor beside the pantry, and that was cold.")
    assert quote(recall(third), question, third=0.9).endswith(
        '"The Bruno desk was at the wall, on the third floor beside the pantry …"'
    )
    assert quote(recall(third), question, third=0.7, wall=0.2).endswith('"… on the third floor beside the pantry …"')
    corrected = unit("My Bruno desk is 3B no sorry 4B near the pantry, dangerous.")
    assert quote(recall(corrected), question, **{"4B": 0.9}).endswith('"… no sorry 4B near the pantry …"')


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        (
            "I live with Bruno, who is 81, no, I tell a lie, 82 this time, by the sea",
            "81, no, I tell a lie, 82 this time …",
        ),
        (
            "My Bruno weighs 81 kilos and eats, or rather 82 kilos, and he barks at cats",
            "81 kilos and eats, or rather 82 kilos …",
        ),
        (
            "My Bruno weighs 81 kilos on the scale, no sorry 82, and he barks at cats",
            "81 kilos on the scale, no sorry 82 …",
        ),
        ("My Bruno weighs 81 kilos on the scale, no fat on him, and he barks at cats", "81 kilos on the scale …"),
    ],
)
def test_a_clause_is_quoted_with_those_that_correct_it(text: str, quoted: str) -> None:
    assert quote(recall(unit(text)), "What does he weigh?", **{"81": 0.9}).endswith(f'{quoted}"')


@pytest.mark.parametrize(
    ("following", "is_quoted"),
    [("I was mistaken: it is Rex.", True), ("No wait, it is Rex.", True), ("He barks at every cat and dog.", False)],
)
def test_a_sentence_is_quoted_with_the_one_behind_it_that_corrects_it(following: str, *, is_quoted: bool) -> None:
    said = unit(f"Yesterday I told you that our old dog at the mill is called Bruno, which he is not. {following}")
    assert (following in Reader(Scorer("Bruno")).reply(dialogue(QUESTION), recall(said))) is is_quoted
    assert (following in quote(recall(said), Bruno=0.9)) is is_quoted


def test_a_text_that_the_assistant_wrote_is_quoted_whole() -> None:
    lines = [
        "For bread and for the hands that bake it,",
        "for salt and Bruno and the sea,",
        "for friends, we give thanks.",
    ]
    memory = recall(unit("\n".join(lines), "Assistant"))
    reader = Reader(Scorer("Bruno"))
    assert " ".join(lines) in reader.reply(dialogue("What was the prayer you wrote for me?"), memory)
    assert " ".join(lines) not in reader.reply(dialogue("What did you say we need?"), memory)


def test_of_a_joke_the_question_is_quoted_too() -> None:
    memory = recall(unit("Why did the scarecrow win? He was Bruno, outstanding in his field.", "Assistant"))
    assert '"Why did the scarecrow win? He' in Reader(Scorer("Bruno")).reply(
        dialogue("What joke did you tell me?"), memory
    )


def test_of_a_mark_of_quotation_without_the_other_nothing_is_quoted() -> None:
    quoted = Reader(Scorer("Bruno")).reply(dialogue(QUESTION), recall(unit('Bruno is "my" dog. Mrs Hale"')))
    assert quoted.endswith("said: \"Bruno is 'my' dog. Mrs Hale\"")


def test_a_list_without_a_verb_is_quoted_to_its_last_item() -> None:
    question = "What is my dog allergic to?"
    for items in ("grass, fish and bee stings", "fish & the grass of Leeds, or milk", "fish, plus every sort of milk"):
        allergic = unit(f"My Bruno is allergic to {items}, but he ate it.")
        quoted = f'"My Bruno is allergic to {items} …"'
        assert quote(recall(allergic), question, Bruno=0.1, allergic=0.1, fish=0.6).endswith(quoted)
    paid = unit("The hotel of Bruno is 240 and the flight 310, so I save.")
    assert quote(recall(paid), "What is the hotel?", **{"240": 0.9}).endswith('"The hotel of Bruno is 240 …"')
    corrected = unit("My Bruno is allergic to grass, no sorry fish and bee stings, he sneezed.")
    assert "grass" not in quote(recall(corrected), question, fish=0.9)


def test_a_list_is_quoted_whole_where_it_is_asked_for() -> None:
    listed = unit("Costco list for Bruno: eggs, rice, and then the meat because he eats a lot")
    assert quote(recall(listed), "What was on my Costco list?", eggs=0.9).endswith('eats a lot"')


def test_every_quotation_of_clauses_is_known_to_repeat_the_turn() -> None:
    statement = unit('My dog was "Rex", no sorry I mean Bruno, and he is old, since May, from the home.')
    clauses = ("Rex", "Bruno", "old", "May", "home")
    for first in range(len(clauses)):
        for last in range(first, len(clauses)):
            shares = dict.fromkeys(clauses[first : last + 1], 0.9 / (last + 1 - first))
            reply = quote(recall(statement), QUESTION, **shares)
            assert any(text in reply for text in quotations(statement)), reply


def test_a_clause_keeps_the_mark_of_what_was_said_before_a_change_and_a_list_item_is_not_cut() -> None:
    for stop in (".", ""):
        doubtful = unit(f"My old dog is Bruno, he barks {SAID_BEFORE}{stop}")
        assert quote(recall(doubtful), barks=0.1, Bruno=0.8).endswith(f'"My old dog is Bruno … {SAID_BEFORE}"')
    listed = unit("Names: 1. Rex, why not. 2. Bruno, after yours. 3. Max.")
    assert "2. Bruno, after yours." in quote(recall(listed), Bruno=0.9)


@pytest.mark.parametrize(
    ("question", "asking", "likely", "replies"),
    [
        ("Melting point of tin?", -0.5, 0.95, "On 5"),
        ("Melting point of tin?", -0.5, 0.2, ""),
        ("Melting point of tin?", 1.5, 0.2, NOT_KNOWN),
        ("Melting point of tin?", 1.5, 0.001, ""),
        (QUESTION, -1.0, 0.2, NOT_KNOWN),
        (QUESTION, -1.0, 0.1, ""),
        (QUESTION, -0.5, 0.001, NOT_KNOWN),
        (QUESTION, -0.5, 0.5, f"{NOT_KNOWN} {CLOSEST}"),
        (QUESTION, -3.5, 0.95, ""),
        ("What is your name?", 4.0, 0.5, ""),
        ("What is your name?", 4.0, 0.95, "On 5"),
        ("Are you my friend?", 4.0, 0.001, ""),
        ("The slogan that you made for the new shop?", -1.5, 0.95, "On 5"),
        ("The slogan of the new shop?", -1.5, 0.95, ""),
        ("What shall I cook for my dog?", -1.0, 0.95, ""),
        ("What shall I cook for my dog?", -0.5, 0.95, "On 5"),
    ],
)
def test_a_turn_is_answered_where_what_it_asks_and_what_is_known_suffice_together(
    question: str, asking: float, likely: float, replies: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Likely(Scorer):
        def score(self, query: str, texts: Sequence[str]) -> list[float]:
            return [likely for _ in texts]

    monkeypatch.setattr("localmem.chat.reader.log_odds_of_asking", lambda *_: asking)
    reply = Reader(Likely("")).reply(dialogue(question), recall(unit("My dog is Bruno.")))
    assert reply.startswith(replies) if replies else reply == ""


@pytest.mark.parametrize(("turn", "is_statement"), [("were going bouldering next wednesday", True), ("my wage", False)])
def test_a_turn_with_a_verb_in_which_no_word_asks_is_answered_only_with_what_is_certain(
    turn: str, is_statement: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localmem.chat.reader.log_odds_of_asking", lambda *_: 4.0)
    scorer, memory = Scorer(""), recall(unit("I climb."))
    replies = []
    for score in (0.95, 0.6, 0.3, 0.001):
        scorer.score = lambda query, texts, score=score: [score for _ in texts]  # type: ignore[method-assign,misc]
        replies.append(Reader(scorer).reply(dialogue(turn), memory))
    assert replies[0] == 'On 5 March 2026 you said: "I climb."'
    assert ["The closest I have" in reply for reply in replies[1:3]] == [not is_statement] * 2
    assert replies[3] == ("" if is_statement else NOT_KNOWN)


def test_the_item_that_a_question_names_is_quoted_alone() -> None:
    names = unit("Some names: 1. Rex. 2. Bruno, after yours. 3. Max. Tell me which.", "Assistant")
    memory = recall(names, unit("I like the name Bruno."))
    for question, item in (
        ("What was the third name that you gave me?", "3. Max."),
        ("What was number one on that list?", "1. Rex."),
        ("And your last one?", "3. Max."),
        ("Which of the names that you gave me was after ours?", "2. Bruno, after yours."),
    ):
        quoted = Reader(Scorer("Bruno")).reply(dialogue(question), memory).splitlines()[0]
        assert quoted == f'On 5 March 2026 I said: "{item}"', question
    reply = Reader(Scorer("Bruno")).reply(dialogue("What names did you suggest?"), memory).splitlines()[0]
    assert "1. Rex. 2. Bruno, after yours. 3. Max." in reply
    assert '"Some names: 1. Rex."' not in Reader(Scorer("Bruno")).reply(dialogue("What was your ninth name?"), memory)


def test_so_is_one_that_a_sentence_lists() -> None:
    names = unit("Names for the boat: Loon, Bruno, and Gull. Sleep on it.", "Assistant")
    reply = Reader(Scorer("Bruno")).reply(dialogue("What was the second name you suggested?"), recall(names))
    assert reply == 'On 5 March 2026 I said: "… Bruno …"'
    whole = Reader(Scorer("Bruno")).reply(dialogue("What names did you suggest?"), recall(names))
    assert "Loon, Bruno, and Gull." in whole


def test_beside_the_likeliest_no_older_turn_is_quoted_of_what_is_so_now() -> None:
    class Rents(Scorer):
        def score(self, query: str, texts: Sequence[str]) -> list[float]:
            return [0.1 if query.startswith("Now: ") else 0.85 if "250" in text else 0.8 for text in texts]

    before, now, after = unit("My rent is 230."), unit("My rent is 250."), unit("My rent may rise.")
    memory = recall(replace(before, time=SAID - timedelta(9)), now, replace(after, time=SAID + timedelta(9)))
    reply = Reader(Rents("")).reply(dialogue("What do I pay for my room?"), memory)
    assert "250" in reply
    assert "rise" in reply
    assert "230" not in reply
    assert "230" in Reader(Rents("")).reply(dialogue("What did I pay for my room before?"), memory)
    assert "230" not in Reader(Rents("")).reply(dialogue("What did I pay for my room in the end?"), memory)


def test_what_a_later_sentence_replaces_is_not_quoted_of_what_is_so_now() -> None:
    class Likely(Scorer):
        later = 0.8

        def score(self, query: str, texts: Sequence[str]) -> list[float]:
            assert not query.startswith("Now: ")
            return [0.9 if "780" in text else self.later if "815" in text else 0.5 for text in texts]

    class Replaced(Scorer):
        def score(self, query: str, texts: Sequence[str]) -> list[float]:
            assert query.startswith("Now: ")
            return [0.99 if "815" in query and "780" in text else 0.01 for text in texts]

    later = {"time": SAID + timedelta(days=30), "id": "late", "sources": ("late",)}
    rent = (unit("My rent is 780."), replace(unit("They want 815 now."), **later))  # type: ignore[arg-type]
    reader = Reader(Likely(""), Replaced(""))
    assert (
        reader.reply(dialogue("How much is my rent?"), recall(*rent))
        == 'On 4 April 2026 you said: "They want 815 now."'
    )
    assert "780" in reader.reply(dialogue("How much was my rent?"), recall(*rent))
    unsure = Likely("")
    unsure.later = 0.6
    assert "780" in Reader(unsure, Replaced("")).reply(dialogue("How much is my rent?"), recall(*rent))
    half = unit("[…] and the 780 is for the flat.")  # what has changed of it was cut already
    assert "780" in reader.reply(dialogue("How much is my rent?"), recall(half, rent[1]))
    together = (
        unit("My rent is 780. It rains."),
        replace(unit("They want 815 now."), time=SAID, id="b", sources=("b",)),
    )
    assert "780" in reader.reply(dialogue("How much is my rent?"), recall(*together))


def test_a_sentence_about_another_person_replaces_nothing() -> None:
    class Jobs(Scorer):
        def score(self, query: str, texts: Sequence[str]) -> list[float]:
            return [0.99 if query.startswith("Now: ") or "Tacoma" in text else 0.8 for text in texts]

    later = replace(unit("Marcus moved to Boise for work."), time=SAID + timedelta(30), id="late", sources=("late",))
    reply = Reader(Jobs("")).reply(dialogue("Where do I work?"), recall(unit("I work nights in Tacoma."), later))
    assert reply.startswith('On 5 March 2026 you said: "I work nights in Tacoma."')


class Corrections(Scorer):
    """Says what is corrected, and how likely a text is by the first of these words in it."""

    def __init__(self, **likely: float) -> None:
        super().__init__("")
        self.likely = likely

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        if query.startswith("Now: "):
            return [0.9 if "shellfish" in text or "Thursday" in text else 0.1 for text in texts]
        return [next((likely for word, likely in self.likely.items() if word in text), 0.01) for text in texts]


def test_a_correction_is_quoted_in_place_of_what_it_corrects() -> None:
    said = unit("I live in Lyon. My son is allergic to shellfish, so no shrimp.")
    corrected = unit("No wait, not that. He's allergic to peanuts.")
    hits = (Hit(said, 0.5, corrected.id), Hit(corrected, 0.5))
    reader = Reader(Corrections(shellfish=0.95, peanuts=0.85))
    for question in ("What is my son allergic to?", "What was my son allergic to?"):
        assert reader.reply(dialogue(question), Recall("memory", hits)) == (
            'On 5 March 2026 you said: "No wait, not that. He\'s allergic to peanuts."'
        )
    assert "shellfish" in reader.reply(dialogue("What had I first said my son is allergic to?"), Recall("memory", hits))
    reminder = reader.remind(dialogue("Write a shopping list for my son."), Recall("memory", hits))
    assert reminder.endswith('"No wait, not that. He\'s allergic to peanuts."')
    short = replace(corrected, text="User: No wait, not that. Peanuts.")
    reminder = reader.remind(
        dialogue("Write a shopping list for my son."), Recall("memory", (hits[0], Hit(short, 0.5)))
    )
    assert reminder.endswith('"No wait, not that. Peanuts."')
    alone = Recall("memory", hits[:1])
    assert "shellfish" in reader.reply(dialogue("What is my son allergic to?"), alone)


def test_what_was_corrected_is_said_to_be_so_where_the_correction_alone_says_too_little() -> None:
    turns = ("The dentist is on Thursday at 3.", "Noted.", "Scrap that, it's Friday now, same time.", "Noted.")
    reader = Reader(Corrections(Thursday=0.95, Friday=0.85))
    assert reader.reply(dialogue("What day is the dentist?", *turns), recall()).splitlines() == [
        'You said: "Scrap that, it\'s Friday (19 June 2026) now, same time."',
        'You first said: "The dentist is on Thursday (18 June 2026) at 3."',
    ]


def test_replies_are_quoted_where_they_are_asked_for_and_questions_never() -> None:
    class Even(Scorer):
        def score(self, query: str, texts: Sequence[str]) -> list[float]:
            return [0.6 for _ in texts]

    memory = recall(unit("My dog is called Bruno."), unit("I would say Rex.", "Assistant"), unit("Is he Ivo?"))
    reply = Reader(Even("")).reply(dialogue(QUESTION), memory)
    assert reply.index("Bruno") < reply.index("Rex")
    assert "Ivo" not in reply
    reply = Reader(Even("")).reply(dialogue("What name did you suggest for my dog?"), memory)
    assert reply.index("Rex") < reply.index("Bruno")


def test_times_are_written_out_in_a_quotation() -> None:
    memory = recall(unit("The vet saw him yesterday."))
    quoted = Reader(Scorer("vet")).reply(dialogue("Who saw my dog?"), memory)
    assert quoted == 'On 5 March 2026 you said: "The vet saw him yesterday (4 March 2026)."'


def test_where_a_day_is_asked_for_and_named_the_day_it_was_said_is_left_out() -> None:
    memory = recall(unit("The vet saw him yesterday."), unit("The vet is Mr Bird."))
    quoted = Reader(Scorer("vet")).reply(dialogue("When did my dog see the vet?"), memory)
    assert quoted.splitlines() == [
        'You said: "The vet saw him yesterday (4 March 2026)."',
        'On 5 March 2026 you said: "The vet is Mr Bird."',
    ]


def test_what_was_worked_out_of_the_likeliest_turn_comes_before_it() -> None:
    bruno, rex = unit("Bruno turned three."), unit("Rex turned nine.")
    quoted = 'On 5 March 2026 you said: "Bruno turned three."'
    for source, expected in ((bruno, f"Three years old.\n{quoted}"), (rex, quoted)):
        worked_out = (Working("three years old", source.sources),)
        memory = Recall("memory", (Hit(bruno, 0.5), Hit(rex, 0.5)), workings=worked_out)
        assert Reader(Scorer("Bruno")).reply(dialogue("How old is my dog?"), memory) == expected
        assert Reader(Scorer("nothing")).reply(dialogue("How old is my dog?"), memory) == "Three years old."


def test_the_mark_of_a_sentence_that_was_replaced_is_not_quoted() -> None:
    quoted = Reader(Scorer("Bruno")).reply(dialogue(QUESTION), recall(unit("I live in Lyon. […] My dog is Bruno.")))
    assert quoted == 'On 5 March 2026 you said: "I live in Lyon. My dog is Bruno."'


def test_what_was_said_in_this_dialogue_is_quoted_too_unless_it_is_hidden() -> None:
    turns = dialogue(QUESTION, "My dog is called Bruno.", "Bruno of Kiel is a fine name.")
    quoted = Reader(Scorer("Bruno")).reply(turns, recall())
    assert quoted == 'On 15 June 2026 you said: "My dog is called Bruno."'
    for hidden in (turns.turns[0].id, f"{turns.turns[0].id}@u0"):
        assert Reader(Scorer("Bruno")).reply(turns, recall(), {hidden}) == NOT_KNOWN
    asking_back = dialogue("What did you say about my dog?", "My dog is old.", "Bruno would be a fine name.")
    assert "I said" in Reader(Scorer("Bruno")).reply(asking_back, recall())


def test_the_readers_own_replies_are_no_source() -> None:
    reader, memory = Reader(Scorer("Bruno")), recall(unit("My dog is called Bruno."))
    quoted = reader.reply(dialogue(QUESTION), memory)
    unlikely = f"{NOT_KNOWN} {CLOSEST} {quoted}"
    for reply in (
        quoted,
        unlikely,
        f"Three years old.\n{quoted}",
        'You said: "He, Bruno, was at the vet (4 March 2026)."',
    ):
        asked_again = dialogue("What did you say about my dog?", "Tell me more.", reply)
        assert reader.reply(asked_again, memory) == quoted


@pytest.mark.parametrize("memory", [recall(), recall(unit("I live in Lyon."))])
def test_a_question_about_the_user_without_an_answer_is_denied(memory: Recall) -> None:
    assert Reader(Scorer("Bruno")).reply(dialogue(QUESTION), memory) == NOT_KNOWN


def test_so_is_one_about_somebody_of_whom_the_user_told() -> None:
    question = "How many children does Halima have?"
    known, unknown = recall(unit("Halima says the bus was late.")), recall(unit("The bus to Halima Street was late."))
    assert Reader(Scorer("Bruno")).reply(dialogue(question), known) == NOT_KNOWN
    assert Reader(Scorer("Bruno")).reply(dialogue(question), unknown) == ""


@pytest.mark.parametrize(
    ("score", "opening"),
    [(0.3, "You haven't told me that. The closest I have:\n"), (0.6, "The closest I have:\n"), (0.9, "")],
)
def test_what_is_not_surely_the_answer_is_called_the_closest_and_denied_where_unlikely(
    score: float, opening: str
) -> None:
    scorer = Scorer("")
    scorer.score = lambda query, texts: [score for _ in texts]  # type: ignore[method-assign]
    units = [unit("I have a dog."), unit("He is old.")]
    quotations = ['On 5 March 2026 you said: "I have a dog."', 'On 5 March 2026 you said: "He is old."']
    reply = Reader(scorer).reply(dialogue(QUESTION), recall(*units))
    assert reply == opening + "\n".join(quotations)
    assert not is_denial(reply)
    assert Reader(scorer).reply(dialogue(QUESTION), recall(units[0])) == opening.replace("\n", " ") + quotations[0]


@pytest.mark.parametrize(
    "turn",
    [
        "What is 12 times 7?",
        "Write a limerick about a drummer.",
        "Bruno has been to the vet today, and he was brave.",
        "Thanks!",
        "Give me three ideas for a birthday cake.",
        "Wie heißt mein Hund?",
    ],
)
def test_other_turns_are_the_backbones(turn: str) -> None:
    memory = recall(unit("My dog is called Bruno."))
    assert Reader(Scorer("Bruno")).reply(dialogue(turn), memory) == ""


def test_a_quotation_is_not_remembered_again() -> None:
    said = unit("I have an old dog at home. The vet saw him yesterday.")
    shown = [QUESTION, dated_lines([said], TODAY)]
    for score in (0.9, 0.6, 0.3):
        scorer = Scorer("")
        scorer.score = lambda query, texts, score=score: [score for _ in texts]  # type: ignore[method-assign,misc]
        assert adds_nothing(Reader(scorer).reply(dialogue(QUESTION), recall(said)), shown)
    assert is_denial(NOT_KNOWN)


INSTRUCTION = "When you write for me, keep it short."
REMINDER = f'\n\nKeep in mind: on 5 March 2026 you said: "{INSTRUCTION}"'


def test_below_a_request_it_reminds_of_an_instruction_that_matters_for_it() -> None:
    reader, memory = (
        Reader(Scorer("short")),
        recall(unit(INSTRUCTION), unit("Short, then.", "Assistant")),
    )
    assert reader.remind(dialogue("Write a note to the school."), memory) == REMINDER
    assert reader.remind(dialogue("The letter for my aunt, help!"), memory) == REMINDER
    story = recall(unit(f"{'It rained. ' * 20}{INSTRUCTION}"))
    reminder = reader.remind(dialogue("Write a note to the school."), story)
    assert f'It rained. {INSTRUCTION}"' in reminder
    assert len(reminder) <= len(REMINDER) - len(INSTRUCTION) + _LONGEST_REMINDER
    cannot = unit("Anna can't eat nuts, and Ben is short of time.")
    assert "Anna can't eat nuts" in reader.remind(dialogue("Suggest a cake for the two."), recall(cannot))
    no_request, long = "We had fish again.", f"Write a note to the school. {'It rained all day. ' * 10}"
    for turn in (no_request, long, "Schreib mir bitte eine Notiz für die Schule."):
        assert not reader.remind(dialogue(turn), memory)
    assert not Reader(Scorer("Bruno")).remind(dialogue("Write a note to the school."), memory)
    plain = recall(unit("The days are short."))
    assert not reader.remind(dialogue("Write a note to the school."), plain)
    sure = Scorer("")
    sure.score = lambda query, texts: [0.99 for _ in texts]  # type: ignore[method-assign]
    assert "The days are short." in Reader(sure).remind(dialogue("Write a note to the school."), plain)


@pytest.mark.parametrize(
    "turn",
    [
        "dont tell anyone but im thinking of quitting nursing",
        "Don't tell Maureen, I've bought her a ring.",
        "Tell you what, I'm shattered",
        "can you believe hes 40",
        "Is it bad that I hate my job?",
        "Mr Hale has asked me to write the programme notes",
        "my mum wants me to make dinner",
        "New list: Bo 12, Ana 14",
        "my plan is to swim",
    ],
)
def test_below_what_is_only_confided_it_reminds_of_nothing(turn: str) -> None:
    reader, memory = Reader(Scorer("short")), recall(unit(INSTRUCTION))
    assert not reader.remind(dialogue(turn), memory)
    assert reader.remind(dialogue(f"{turn}. Write a note about it."), memory) == REMINDER


def test_a_reminder_is_recognised_whatever_line_breaks_the_user_wrote() -> None:
    listed = recall(unit("When you write for me:\n1. Keep it short,\n   please\n2. Sign as Anna"))
    reminder = Reader(Scorer("short")).remind(dialogue("Write a note to the school."), listed)
    assert "Keep it short, please" in reminder
    assert without_reminder(f"Dear all.{reminder}") == "Dear all."


def test_which_instruction_matters_is_scored_by_the_first_of_two_stages() -> None:
    memory = recall(unit(INSTRUCTION))
    assert (
        Reader(Scorer("nothing"), Scorer("short")).remind(dialogue("Write a note to the school."), memory) == REMINDER
    )
    assert not Reader(Scorer("short"), Scorer("nothing")).remind(dialogue("Write a note to the school."), memory)


def test_a_conversation_is_reminded_once_and_nothing_is_learned_from_it() -> None:
    agent = Conversation(
        memory=Told(INSTRUCTION), llm=ScriptedLLM(lambda _: "Dear all."), reader=Reader(Scorer("short"))
    )
    pieces = agent.stream("Write a note to the school.", SAID)
    assert list(pieces)[-1] == REMINDER
    assert agent.chat("Write another note.", SAID).turn.text == "Dear all."
    noted = agent.responder.answer(dialogue("Write a note to the school."))
    assert noted.turn.text == noted.completion.text == f"Dear all.{REMINDER}"
    past = session("Write a note to the school.", noted.turn.text)
    answer = places(past)[1]
    assert [each.text for each in turn_units(past.id, answer)] == ["Assistant: Dear all."]
    copied = session("Write a note to the school.", f"Write a note to the school.{REMINDER}")
    assert not is_new(places(copied)[1], ())


class Told(Memory):
    """Recalls one unit."""

    name = "told"

    def __init__(self, text: str = "My dog is called Bruno.") -> None:
        super().__init__()
        self.text = text

    def recall(self, session: Session) -> Recall:
        return recall(unit(self.text))

    def end_session(self, session: Session) -> list[Change]:
        return [AddUnit(unit("a"), SAID)]


def test_a_conversation_replies_with_the_readers_words_unless_a_format_is_asked_for() -> None:
    agent = Conversation(memory=Told(), llm=ScriptedLLM(lambda _: "{}"), reader=Reader(Scorer("Bruno")))
    assert agent.chat(QUESTION, SAID).turn.text == 'On 5 March 2026 you said: "My dog is called Bruno."'
    assert agent.chat("Write a limerick.", SAID).turn.text == "{}"
    logged = agent.log_turns(QUESTION, SAID, "s")
    prepared = agent.responder.prepare(logged)
    formatted = prepared._replace(prompt=replace(prepared.prompt, format=JsonSchema({})))
    assert (bool(prepared.ready), formatted.ready) == (True, "")
    assert agent.responder.answer(logged).turn.text.startswith("On 5 March")


FOREIGN = [
    (
        "Wie heißt meine Vermieterin?",
        "Meine Vermieterin heißt Frau Krüger. Sie ist nett.",
        "Am 5. März 2026 sagtest du: ",
    ),
    ("como se llama mi casera?", "mi casera se llama Pilar, majisima", "El 5 de marzo de 2026 dijiste: "),
    ("comment s'appelle mon chien ?", "mon chien s'appelle Titus, un teckel", "Le 5 mars 2026 tu as dit: "),
    ("на что у меня аллергия?", "у меня аллергия на орехи кстати", "Твои слова от 5 марта 2026: "),
    ("köpeğimin adı ne?", "köpeğimin adı Karabaş, çok uslu", "5 Mart 2026 tarihinde dedin ki: "),
    ("我的狗叫什么名字？", "我的狗名字叫阿福，八岁了", "你在2026年3月5日说过: "),
    ("うちの犬の名前なんやっけ", "うちの犬の名前はきなこ、柴犬やで", "2026年3月5日のあなたの言葉: "),
    ("내 강아지 이름이 뭐였지?", "내 강아지 이름은 초코 예요", "2026년 3월 5일에 이렇게 말했어요: "),
    ("jak nazywa się mój pies?", "mój pies nazywa się Reksio, ma 5 lat", "Twoje słowa z 5 marca 2026: "),
]


@pytest.mark.parametrize(("question", "text", "opening"), FOREIGN)
def test_a_question_in_another_language_is_answered_in_it_by_a_quotation(
    question: str, text: str, opening: str
) -> None:
    reply = Reader(Scorer("")).reply(dialogue(question), recall(unit(text)))
    assert opening in reply
    assert text.partition(".")[0] in reply
    assert is_reading(reply)


@pytest.mark.parametrize(
    ("question", "statement", "reply"),
    [
        ("Wo arbeite ich?", "mein hund heißt rex und ist lieb", "Das weiß ich nicht, dazu finde ich nichts."),
        ("comment s'appelle ma cousine ?", "il pleut depuis hier", "Je ne sais pas, je ne trouve rien là-dessus."),
        ("где работает мой брат?", "купила зеленый велик", "Не знаю, ничего об этом не нахожу."),
    ],
)
def test_what_no_word_is_shared_with_is_not_known_in_the_language_of_the_question(
    question: str, statement: str, reply: str
) -> None:
    answer = Reader(Scorer("")).reply(dialogue(question), recall(unit(statement)))
    assert answer == reply
    assert is_reading(answer)


@pytest.mark.parametrize(
    "turn",
    [
        "Wie viel sind 17 mal 2,40?",
        "Erklär mir bitte, was ein Reh ist",
        "escribe un haiku sobre la noche",
        "почему небо синее",
        "mein Hund heißt Rex",
        "Danke!",
    ],
)
def test_other_turns_in_another_language_are_the_backbones(turn: str) -> None:
    memory = recall(unit("mein Hund heißt Rex, 17 Kilo"), unit("la noche es larga"), unit("у меня новый велик"))
    assert Reader(Scorer("")).reply(dialogue(turn), memory) == ""


@pytest.mark.parametrize(
    ("first", "second", "question", "place"),
    [
        ("ich wohne in Bremen", "ich wohne jetzt in Kiel", "Wo wohne ich?", "Kiel"),
        ("ich wohne in Bremen", "bin nach Kiel umgezogen", "wo wohne ich jetzt", "Kiel"),
        ("J'habite à Lyon.", "j'ai déménagé à Nantes", "j'habite où", "Nantes"),
        ("Я живу в Казани.", "я переехал в Москву", "где я живу", "Москву"),
        ("أنا ساكن في عمان", "انتقلت الى دبي", "وين ساكن أنا", "دبي"),
        ("我住在北京。", "我搬到上海了", "我住在哪里？", "上海"),
        ("나는 부산에 살아.", "서울로 이사했어", "나 어디 살아?", "서울"),
    ],
)
def test_quotations_in_another_language_are_the_newest_first(
    first: str, second: str, question: str, place: str
) -> None:
    old, new = unit(first), replace(unit(second), time=SAID + timedelta(days=30))
    lines = Reader(Scorer("")).reply(dialogue(question), recall(old, new)).splitlines()[-2:]
    assert [place in line for line in lines] == [True, False]


def test_a_correction_in_another_language_is_quoted_before_what_it_corrects() -> None:
    new = replace(unit("nein, ich meinte Donnerstag"), time=SAID + timedelta(minutes=1))
    old = Hit(unit("mein Zahnarzttermin ist am Dienstag"), 0.9, corrected_by=new.id)
    recalled = replace(recall(new), hits=(old, Hit(new, 0.9)))
    lines = Reader(Scorer("")).reply(dialogue("wann ist mein Zahnarzttermin"), recalled).splitlines()
    assert ["Donnerstag" in line for line in lines] == [True, False]
