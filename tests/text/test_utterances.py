"""Which turns are evidence, denials, corrections or questions about the past, in several languages."""

import pytest

from localmem.text.utterances import (
    adds_nothing,
    asks_about_past,
    asks_only,
    is_correction,
    is_denial,
    is_evidence,
    is_small_talk,
)

NO_EVIDENCE = """\
What colour is my bicycle?
whats my dog called
do you remember where i parked
whats the name of my dog again
remind me when jean's op is
ok
lol great
perfect ta
write me a poem about autumn
what is 12 times 7
Hello! How are you today?
thank you so much, bye
Wie heißt mein Hund?
wann fahren wir nach juist
danke dir, gute nacht
comment s'appelle mon chien ?
merci beaucoup
¿Dónde vivo?
cuándo es mi cita con el dentista
Come si chiama il mio cane?
Qual é o nome do meu cachorro?
hoe heet mijn hond
Jak ma na imię mój pies?
我的狗叫什么名字？
谢谢你！
私の犬の名前は何ですか
내 개 이름이 뭐야?
Как зовут мою собаку?
спасибо большое"""

EVIDENCE = """\
my dog is called biscuit
what can i cook that wont kill us, jean's hip is on the 11th
write to the council about the pothole outside ours, 42 calder rise
i moved to porto
remind me to call jean at 5
Biscuit.
Can you suggest a name for my new whippet?
ok. we moved the party to saturday
Mein Hund heißt Bello.
je suis allergique aux noix
Vivo en Lisboa desde marzo.
我对青霉素过敏
私は京都に住んでいます
Я живу в Казани"""

DENIALS = """\
I don't know that.
I don't know that. Could you tell me?
You haven't told me Desmond's surname, Walter, only his first name.
I'm not sure, sorry. You never mentioned it to me.
I have no record of that. If you tell me, I'll remember it.
You asked me to forget his name, so I don't have it any more.
Das hast du mir noch nicht erzählt.
Das weiß ich leider nicht.
Non, tu ne me l'as pas dit.
你没告诉过我学校的名字。
わかりません。
모르겠어요.
Я этого не знаю."""

ANSWERS = """\
Your bicycle is green.
I don't know for certain, but you said it was green.
You never got there, the hike was off because the track flooded.
None, Tin Roof fell through when Bashir broke his wrist.
Don't worry, you told me: it is in the third drawer.
Er heißt Bello.
你对青霉素过敏。"""


@pytest.mark.parametrize("text", NO_EVIDENCE.splitlines())
def test_questions_requests_and_courtesies_are_no_evidence(text: str) -> None:
    assert not is_evidence(text)


@pytest.mark.parametrize("text", EVIDENCE.splitlines())
def test_what_tells_something_is_evidence(text: str) -> None:
    assert is_evidence(text)


@pytest.mark.parametrize("text", DENIALS.splitlines())
def test_denials_are_recognised(text: str) -> None:
    assert is_denial(text)


@pytest.mark.parametrize("text", ANSWERS.splitlines())
def test_answers_are_no_denials(text: str) -> None:
    assert not is_denial(text)


def test_questions_and_courtesies_are_told_apart() -> None:
    assert asks_only("hi, whats my dog called")
    assert not asks_only("hi there")
    assert is_small_talk("hi there, thanks!")
    assert not is_small_talk("hi, whats my dog called")


@pytest.mark.parametrize(
    "text", ["no wait, I meant the other one", "sorry, thursday not tuesday", "nein warte, ich meinte Bello"]
)
def test_corrections_are_recognised(text: str) -> None:
    assert is_correction(text)


def test_statements_are_no_corrections() -> None:
    assert not is_correction("i live in porto and have a dog, not a cat")


@pytest.mark.parametrize(
    "text", ["where did I use to live", "what was the old price", "Wo habe ich früher gewohnt?", "我以前住在哪里？"]
)
def test_questions_about_the_past_are_recognised(text: str) -> None:
    assert asks_about_past(text)


def test_questions_about_now_are_not_about_the_past() -> None:
    assert not asks_about_past("where do i live now")


def test_repetition_adds_nothing() -> None:
    memory = "my bicycles are green, bought in 2019 in Porto"
    assert adds_nothing("Your bicycle is green; you bought it in Porto in 2019.", [memory])
    assert not adds_nothing("Your bicycle is green; you bought it in Porto in 2020.", [memory])
    assert not adds_nothing("Your bicycle is red and your daughter rides it to school.", [memory])
    assert adds_nothing("你住在红牌楼", ["我住在红牌楼三楼"])
    assert not adds_nothing("你住在青羊区", ["我住在红牌楼三楼"])
