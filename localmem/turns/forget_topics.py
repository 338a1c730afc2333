"""The words of a request to forget that say what it is about, without those that only say that something was told.

Does not know what is remembered.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache

from localmem.retrieval.languages import detect_language, frequent_words
from localmem.text.parse import words

_UNSPACED = ("chinese", "japanese", "korean")

NO_TOPIC = frozenset(
    words("""
    a abeg about actually again ago ai all already alsjeblieft also am an and any anymore anything anywhere are
    around as at auch back be been before better bin bit bitte but by ca can cant ce chat che clear computer could das
    day days de delete dem den der detto did didn't die dije dimentica dir disse dit do does don don't dont down
    drop ecrit el erase es eso esquece eu ever every everything favor favore figure for forget from gave get
    give go had has have haven he her here herh hers hey hier him his ho how i i'd i'm i've ich id if ik il ill
    im in into is isnt isso it it's its ive j je just keep keiner kindly know la le les let like listen lo lose
    lot lying ma make mate me mean mein meine memory mention mentioned mes meu mi might mijn mine minha mir mit
    mon more muss my need never nicht no nobody not nothing now o of off oh ok okay olvida on once one only or
    other oublie our out over pas past per pl plait please pls plz por posted pourquoi pretend purge put qu que
    quello read really record remember remove rid s said sais save saw say scrap scratch see sent shared she
    should shouldnt so some sorry stored strike stuff such sure t te tell text than thanks that that's thats the
    their them then there these they thing things this those time to told too typed u um und unremember up us
    vergeet vergiss very want was wasnt wat way we week weeks well were what whatever when where which while who
    why wieder will wipe wirklich wissen with would write written wrote ya yeah yes yesterday you you're your
    abbiamo alles aus avons borra borrar cancella cancellare dalla dass deine deinem deiner dimenticare efface
    effacer ein eine einem einen einer einfach einmal elimina eliminar eliminare entferne erinnerung erzählt estoy
    etwas gedächtnis gesagt habe haben hast est hemos ho ist j'ai lösch lösche löschen memoria mio mémoire olvidar
    oublier possiamo qu'on rimuovi s'il sabes sai sais savez siamo sind sommes somos sono soy speicher suis supprime
    supprimer ta tenemos tengo toda todo tout tu tua tutta tutto un una une uno vergessen voglio we're we've weiss
    weißt wir
    bana dediklerimi hakkinda ile ilgili konusunu lutfen musun sana sil soylediklerimi unut unutur
    إنس انس انسى اللي امسح تنسى حكيت رجاء عن قلت قلته قلتلك لك لو ما من ممكن موضوع سمحت فضلك
    cosa dello del des du faccenda geschichte história lo mit mn sache scordati storia van vom zum zur
    zapomnij zapomniec proszę usuń mowilam mowilem powiedzialam powiedzialem tym możesz забудь забудьте забыть удали
    можешь пожалуйста про то что сказал сказала говорил говорила мой моя мои
    얘기 이야기 잊어줘 지워줘 주세요
    sobre sur über yours zei immediately notes privacy private reason reasons records safety sake
    串 也 了 你 吧 对 就 当 得 忘 我 把 掉 改 没 的 记 说 请 过 这 那
    """)
)


def find_topic(sentence: str) -> tuple[str, ...]:
    """The words of a sentence (folded, each once) that say what it is about.

    In another language than English written with spaces, its frequent words do not: "par contre" is about nothing.
    """
    language = detect_language(sentence, re.findall(r"\w+", sentence.casefold()))
    frequent = folded_frequent_words(language) if language not in (None, "english", *_UNSPACED) else frozenset[str]()
    unique = dict.fromkeys(terms(word for word in words(sentence) if word not in NO_TOPIC and word not in frequent))
    return tuple(term for term in unique if len(term) > 1)


@cache
def folded_frequent_words(language: str) -> frozenset[str]:
    """The frequent words of a language, folded."""
    return frozenset(words(" ".join(frequent_words(language))))


def read_lower_case_name(text: str) -> str:
    """The word that a message without capitals asks to forget, which may be a name: "forget about callum"."""
    request = re.fullmatch(
        r"\W*(?:(?:please|pls|ok|just) )?forget (?:(?:all )?about )?([a-z'’-]{3,})\W*(?:please|pls)?\W*", text
    )
    return request[1] if request and request[1] not in NO_TOPIC else ""


def introduces(text: str, name: str) -> bool:
    """Whether a text says that someone or something has the name, or writes it so within a sentence."""
    called = re.search(rf"\b(?:called|named|name is|name['’]?s) {re.escape(name)}\b", text, re.IGNORECASE)
    return bool(called or re.search(rf"[a-z,] {re.escape(name.capitalize())}\b", text))


def terms(words: Iterable[str]) -> Iterator[str]:
    """The words; of a language that writes no spaces, whose words are single characters here, the pairs instead."""
    previous = ""
    for word in words:
        is_character = len(word) == 1 and word >= "\u3040"
        if not is_character:
            yield word
        elif previous:
            yield previous + word
        previous = word if is_character else ""
