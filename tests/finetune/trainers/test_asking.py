"""Fitting how the reader tells asking: what is learned from, and a model that may stand in asking.yaml."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from numpy.typing import NDArray

from finetune.trainers.asking import _measure, asking_text, fit_asking, read_sentences, read_turns
from finetune.trainers.ranking import Request
from localmem.errors import BadInput
from localmem.evaluation.datasets.scenarios import Person, ScenarioProbe
from localmem.systems.evidence.asking import describe_turn
from localmem.systems.evidence.relevance import Model
from tests.fakes import session
from tests.finetune.trainers.test_ranking import write_person
from tests.finetune.trainers.test_reranker import write_contrasts


class Reader:
    """Tells by its vector whether a turn is short."""

    query_identity = "fake/3"

    def read_query(self, query: str) -> NDArray[np.float32] | None:
        return None if query == "Wo?" else np.array([1.0, len(query) < 20], dtype=np.float32)


def test_questions_are_learned_against_requests_and_what_is_said() -> None:
    probe = ScenarioProbe(type="single-fact", question="present wage", paraphrase="my pay now")
    advice = ScenarioProbe(type="preference", question="how should I travel")
    past = session("I started at the dairy this week, and it is cold.", "Well done.", "I am paid in cash.", "I see.")
    person = Person("a-1", "en", (past,), (probe, advice), ((), ()), ("Please write a long poem about cheese.", "Wo?"))
    turns = list(read_turns([person], Reader()))
    own = [turn.needs_memory for turn in turns if turn.author == "a"]
    assert own == [True, True, False, False]  # no advice, nothing unread, and one of four turns
    lessons = [turn.needs_memory for turn in turns if not turn.author]
    assert min(lessons.count(True), lessons.count(False)) > 100
    table = yaml.safe_load(asking_text(turns[:4] * 20, turns[:4] * 20, Reader()))
    cues = describe_turn("my wage")
    for model in map(Model.model_validate, (table["vectors"], table["elliptical"])):
        assert model.reader == "fake/3"
        assert model.probability(cues, (1.0, 1.0)) > model.probability(cues, (1.0, 0.0))


def test_short_sentences_of_what_is_said_are_learned_as_if_they_were_turns() -> None:
    texts: list[str] = []

    class Listening(Reader):
        def read_query(self, query: str) -> NDArray[np.float32] | None:
            texts.append(query)
            return super().read_query(query)

    past = session("I moved to Porto. The flat is small. Ha. " + "It has a door " * 9, "I see the flat now.")
    sentences = list(read_sentences([Person("a-1", "en", (past,), (), (), ())], Listening()))
    assert texts == ["I moved to Porto.", "The flat is small."]
    assert not any(turn.needs_memory for turn in sentences)


def test_questions_of_contrasts_that_name_words_are_learned_against_what_is_said_there(tmp_path: Path) -> None:
    (tmp_path / "people").mkdir()
    write_person(tmp_path / "people", "a-1")

    class Listening(Reader):
        def read_query(self, query: str) -> NDArray[np.float32] | None:
            texts.append(query)
            return super().read_query(query)

    texts: list[str] = []
    fit_asking(Listening(), [tmp_path / "people", write_contrasts(tmp_path / "named")], [], tmp_path / "out")
    assert {"How big is my dog?", "How old is my dog?", "The hen left My dog is big now"} < set(texts)
    assert "I see." not in texts
    texts.clear()
    unnamed = write_contrasts(tmp_path / "unnamed", words="")
    fit_asking(Listening(), [tmp_path / "people", unnamed], [], tmp_path / "out")
    assert "How big is my dog?" not in texts


def test_authors_who_are_held_out_are_measured_and_not_learned(tmp_path: Path) -> None:
    for name in ("a-1", "b-1"):
        write_person(tmp_path, name)
    (row,) = fit_asking(Reader(), [tmp_path], ["b"], tmp_path / "out")
    assert row["author"] == "b"
    assert (row["questions"], row["other turns"]) == (3, 3)
    assert "vectors" in yaml.safe_load((tmp_path / "out" / "asking.yaml").read_text())
    with pytest.raises(BadInput, match="describes no queries"):
        fit_asking(None, [tmp_path], [], tmp_path / "out")


def test_people_without_questions_and_a_folder_that_cannot_be_written_are_refused_before_anything_is_read(
    tmp_path: Path,
) -> None:
    class Unasked(Reader):
        def read_query(self, query: str) -> NDArray[np.float32] | None:
            pytest.fail(f"reads {query}")

    write_person(tmp_path, "a-1")
    with pytest.raises(BadInput, match="no questions"):
        fit_asking(Unasked(), [tmp_path], ["a"], tmp_path / "out")
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="choose another --out"):
        fit_asking(Unasked(), [tmp_path], [], tmp_path / "file" / "out")


def test_a_weight_that_rounds_to_nothing_still_names_its_cue() -> None:
    """Turns that ask have all cues, so that all others must have them too."""
    cues = describe_turn("Where do I live?")
    turns = [Request("a", cues | {"self": float(asks)}, asks, [0.0, 0.0]) for asks in (True, False)]
    table = yaml.safe_load(asking_text(turns, [turn._replace(cues=cues | {"asks": 0.0}) for turn in turns], Reader()))
    assert table["vectors"]["weights"].keys() == cues.keys()
    assert 0.0 in table["vectors"]["weights"].values()


@pytest.mark.parametrize(("text", "is_read"), [("my present wage", True), ("Write a poem.", False)])
def test_a_command_is_measured_as_it_is_read_in_chats(text: str, is_read: bool) -> None:
    """Whatever the model of elliptical questions says: a command tells nothing, and is left to the backbone."""
    likely = Model(bias=9.0, vector=(0, 0))
    models = {"vectors": likely, "elliptical": likely}
    figures = _measure("a", models, [Person("a-1", "en", (), (), (), (text,))], Reader())
    assert figures["other turns taken as questions"] == float(is_read)
