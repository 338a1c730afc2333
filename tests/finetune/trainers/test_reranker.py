"""Training a reranker: what is learned from, the losses, a run that resumes, and mistakes in the data."""

import json
from itertools import count
from pathlib import Path

import pytest
import torch

import finetune.trainers.reranker as reranker_training
from finetune.reranker_lessons import (
    OUTDATED,
    RIGHT,
    WRONG,
    Lesson,
    hold_out_people,
    read_lessons,
    replacement_lessons,
    sample_texts,
)
from finetune.trainers.reranker import PairLearner, RerankerRecipe, lesson_loss, train
from finetune.trainers.training import CHECKPOINTS, TrainingJob
from localmem.errors import BadInput, BadSettings
from localmem.factory import reranker
from localmem.files import read_json
from localmem.retrieval.bm25 import BM25Retriever
from localmem.retrieval.split_reranker import RerankerSettings, base_weights, read_reranker
from tests.finetune.small import small_encoder

ANIMALS = ("dog", "cat", "horse", "goat", "duck", "hen")
WORDS = ("user", "assistant", ":", ".", "what", "about", "the", "my", "is", "big", "small", "i", "see", "that", "?")
NORMALIZER = {
    "type": "BertNormalizer",
    "clean_text": True,
    "handle_chinese_chars": True,
    "strip_accents": None,
    "lowercase": True,
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = [*ANIMALS, *WORDS]
    folder = small_encoder(tmp_path_factory.mktemp("base"), words, layers=2)
    file = folder / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"normalizer": NORMALIZER}))
    return folder


def write_people(folder: Path, *names: str) -> Path:
    """People who tell one thing about each animal, and are asked about it."""
    folder.mkdir()
    for name in names:
        turns = [
            {"role": role, "content": content}
            for animal in ANIMALS
            for role, content in (("user", f"My {animal} is big."), ("assistant", "I see."))
        ]
        probes = [
            {
                "type": "single-fact",
                "question": f"What about the {animal}?",
                "paraphrase": f"Is my {animal} small?",
                "evidence": [[0, 2 * number]],
            }
            for number, animal in enumerate(ANIMALS)
        ]
        update = {"type": "knowledge-update", "question": "The dog?", "evidence": [[0, 0]], "must_not_contain": ["Cat"]}
        person = {
            "sessions": [{"started_at": "2025-01-02T10:00", "turns": turns}],
            "probes": [*probes, update],
            "ordinary": ["What is that?"],
        }
        (folder / f"{name}.json").write_text(json.dumps(person))
    return folder


def test_sentences_are_learned_with_the_one_before_them(base: Path, tmp_path: Path) -> None:
    data = write_people(tmp_path / "people", "a-1")
    person = json.loads((data / "a-1.json").read_text())
    person["sessions"][0]["turns"][0]["content"] = "My cat is small. My dog is big. The dog is old."
    probe = {**person["probes"][0], "must_contain": ["big"], "must_not_contain": ["small"]}
    (data / "a-1.json").write_text(json.dumps(person | {"probes": [probe]}))
    lessons = read_lessons(data, lambda: BM25Retriever(language="english"), 5, sentences=True)
    (lesson,) = (each for each in lessons if each.query == probe["question"])
    labels = dict(zip(lesson.texts, lesson.labels, strict=True))
    assert labels["User: My dog is big. [My cat is small.]"] == RIGHT
    assert labels["User: My cat is small."] == labels["User: The dog is old. [My dog is big.]"] == WRONG
    words = {
        text: [text[slice(*place)] for place in places] for text, places in zip(lesson.texts, lesson.words, strict=True)
    }
    assert words["User: My dog is big. [My cat is small.]"] == ["big"]
    assert words["User: The dog is old. [My dog is big.]"] == []
    assert "User: My goat is big." not in labels


@pytest.mark.parametrize(
    ("accepted", "rejected", "right"),
    [
        (["big"], ["small"], ["User: It was small, now it is big."]),
        (["11"], [], ["User: I paid 7 for the hen. [It was small, now it is big.]", "User: And 4 for the duck."]),
        (["6 January 2025"], [], ["User: The goat came on Monday (6 January 2025). [And 4 for the duck.]"]),
        (["bullets"], [], ["User: When you write, keep it short. [The goat came on Monday (6 January 2025).]"]),
        (["11"], ["7"], ["User: I paid 7 for the hen. [It was small, now it is big.]", "User: And 4 for the duck."]),
    ],
)
def test_the_right_sentences_are_those_an_answer_can_be_worked_out_from(
    tmp_path: Path, accepted: list[str], rejected: list[str], right: list[str]
) -> None:
    data = write_people(tmp_path / "people", "a-1")
    file = data / "a-1.json"
    person = json.loads(file.read_text())
    said = "It was small, now it is big. I paid 7 for the hen. And 4 for the duck. The goat came on Monday."
    person["sessions"][0] = {
        "started_at": "2025-01-09T10:00",
        "turns": [
            {"role": "user", "content": f"{said} When you write, keep it short."},
            {"role": "assistant", "content": "Yes."},
        ],
    }
    probe = {"type": "single-fact", "question": "What about it?", "evidence": [[0, 0]]}
    probes = [{**probe, "must_contain": accepted, "must_not_contain": rejected}]
    file.write_text(json.dumps(person | {"probes": probes}))
    (lesson,) = (each for each in sentence_lessons(data) if each.query == probe["question"])
    learned = [text for text, label in zip(lesson.texts, lesson.labels, strict=True) if label == RIGHT]
    for text in right:
        assert any(each.startswith(text) for each in learned)


def test_a_question_whose_answer_is_in_no_known_sentence_is_left_out(tmp_path: Path) -> None:
    data = write_people(tmp_path / "people", "a-1")
    person = json.loads((data / "a-1.json").read_text())
    unclear = {**person["probes"][0], "must_contain": ["enormous"]}
    clear = {**person["probes"][1], "must_contain": ["big"]}
    never = {"type": "abstention", "question": "What about the hen house?", "evidence": [], "must_contain": ["told"]}
    (data / "a-1.json").write_text(json.dumps(person | {"probes": [unclear, never, clear]}))
    queries = [lesson.query for lesson in sentence_lessons(data)]
    assert unclear["question"] not in queries
    assert {never["question"], clear["question"]} <= {*queries}


def test_contrasts_are_learned_by_sentences_and_by_exchanges(tmp_path: Path) -> None:
    folder = write_contrasts(tmp_path / "contrasts")
    new_index = lambda: BM25Retriever(language="english")  # noqa: E731
    by_sentence = {lesson.query: lesson for lesson in read_lessons(folder, new_index, 5, sentences=True)}
    lesson = by_sentence["How big is my dog?"]
    labels = dict(zip(lesson.texts, lesson.labels, strict=True))
    assert labels["User: My dog is big now [The hen left]"] == RIGHT
    assert labels["User: My dog is small"] == OUTDATED
    assert labels["User: The hen left"] == WRONG
    place = lesson.words[lesson.texts.index("User: My dog is big now [The hen left]")]
    assert [lesson.texts[lesson.labels.index(RIGHT)][slice(*each)] for each in place] == ["big now"]
    assert RIGHT not in by_sentence["How old is my dog?"].labels
    by_exchange = {lesson.query: lesson for lesson in lessons_of(folder)}
    labels = dict(zip(by_exchange["How big is my dog?"].texts, by_exchange["How big is my dog?"].labels, strict=True))
    assert labels["User: The hen left\nMy dog is big now"] == RIGHT
    assert labels["User: My dog is small\nAssistant: I see."] == OUTDATED
    assert {lesson.person for lesson in by_exchange.values()} == {"home-1/1"}


def test_which_sentence_one_replaces_is_learned_from_what_is_outdated() -> None:
    texts = (
        "User: Rent is 815 [Bad news]",
        "User: Rent is 780",
        "User: I walk",
        "User: I run",
        "User: I swim",
        "Assistant: Ask",
    )
    change = Lesson("a", "my rent?", texts, (RIGHT, OUTDATED, WRONG, WRONG, WRONG, WRONG))
    fact = Lesson("b", "do I swim?", texts, (WRONG, WRONG, WRONG, WRONG, RIGHT, WRONG))
    short = Lesson("c", "do I run?", texts[:4], (WRONG, WRONG, WRONG, RIGHT))
    replied = Lesson("d", "what to do?", texts, (WRONG, WRONG, WRONG, WRONG, WRONG, RIGHT))
    lessons = replacement_lessons([change, fact, short, replied], seed=0)
    assert [lesson.person for lesson in lessons] in (["a", "b"], ["a", "c"])
    assert lessons[0].query == "Now: Rent is 815 [Bad news]"
    assert lessons[0].texts == texts[1:5]
    assert lessons[0].labels == (RIGHT, WRONG, WRONG, WRONG)
    assert RIGHT not in lessons[1].labels
    assert not replacement_lessons([fact], seed=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answers": ["My dog is blue"]}, "group 1: no message holds the sentence 'My dog is blue'; copy it"),
        ({"text": None}, r"group 1.*text"),
    ],
)
def test_mistakes_in_contrasts_are_named_with_their_place(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    folder = write_contrasts(tmp_path / "contrasts", **change)
    with pytest.raises(BadInput, match=message):
        lessons_of(folder)


def write_contrasts(folder: Path, **change: object) -> Path:
    folder.mkdir()
    messages = [
        {"who": "user", "day": "2025-01-02", "sentences": ["My dog is small"]},
        {"who": "assistant", "day": "2025-01-02", "sentences": ["I see."]},
        {"who": "user", "day": "2025-02-03", "sentences": ["The hen left", "My dog is big now"]},
    ]
    answer = {"answers": ["My dog is big now"], "outdated": ["My dog is small"], "words": "big now"}
    question = {"text": "How big is my dog?"} | answer | change
    group = {"messages": messages, "questions": [question, {"text": "How old is my dog?", "answers": []}]}
    (folder / "home-1.json").write_text(json.dumps([group]))
    return folder


def make_job(
    base: Path, data: Path, out: Path, *, resume: bool = False, **fields: object
) -> TrainingJob[RerankerRecipe]:
    settings: dict[str, object] = {
        "base": str(base),
        "data": (data,),
        "hold_out": ("b",),
        "split_layers": 1,
        "epochs": 4,
        "learning_rate": 1e-3,
        "patience": 9,
        "negatives": 4,
    }
    return TrainingJob(RerankerRecipe.model_validate(settings | fields), out, resume=resume, notify=lambda _: None)


def sentence_lessons(folder: Path) -> list[Lesson]:
    return read_lessons(folder, lambda: BM25Retriever(language="english"), 5, sentences=True)


def lessons_of(folder: Path) -> list[Lesson]:
    return read_lessons(folder, lambda: BM25Retriever(language="english"), 30)


def test_lessons_hold_the_evidence_what_was_found_and_a_denial(tmp_path: Path) -> None:
    lessons = {lesson.query: lesson for lesson in lessons_of(write_people(tmp_path / "people", "a-1"))}
    assert len(lessons) == 2 * len(ANIMALS) + 2
    lesson = lessons["What about the dog?"]
    assert lesson.texts[lesson.labels.index(RIGHT)] == "User: My dog is big.\nAssistant: I see."
    assert lesson.labels.count(RIGHT) == 1
    assert lesson.texts[-1].startswith(("User: What about the dog?", "User: Is my dog small?"))
    assert lesson.labels[-1] == WRONG
    assert RIGHT not in lessons["What is that?"].labels


def test_old_values_are_outdated_and_forgotten_ones_left_out(tmp_path: Path) -> None:
    folder = write_people(tmp_path / "people", "a-1")
    person = json.loads((folder / "a-1.json").read_text())
    person["probes"] = [
        {"type": "knowledge-update", "question": "My cat, my dog?", "evidence": [[0, 0]], "must_not_contain": ["Cat"]},
        {"type": "forgotten", "question": "My duck?", "evidence": [[0, 8]]},
    ]
    (folder / "a-1.json").write_text(json.dumps(person))
    update, *others = [lesson for lesson in lessons_of(folder) if "my" in lesson.query.lower()]
    labels = dict(zip(update.texts, update.labels, strict=True))
    assert labels["User: My cat is big.\nAssistant: I see."] == OUTDATED
    assert others == []


def test_people_are_held_out_by_person_or_author() -> None:
    lessons = [Lesson(name, "q", ("t",), (RIGHT,)) for name in ("a-1", "a-2", "b-1")]
    for held_out, expected in ((("b",), {"b-1"}), (("a-2", "b"), {"a-2", "b-1"}), ((), {"b-1"})):
        learned, checked = hold_out_people(lessons, held_out)
        assert {lesson.person for lesson in checked} == expected
        assert not expected & {lesson.person for lesson in learned}
    with pytest.raises(BadInput, match="'c' is no person"):
        hold_out_people(lessons, ["c"])
    with pytest.raises(BadInput, match="every person"):
        hold_out_people(lessons, ["a", "b"])


def test_a_sample_has_the_right_texts_the_denial_and_as_many_wrong_ones_as_asked() -> None:
    labels = (RIGHT, *[WRONG] * 25, RIGHT, OUTDATED, RIGHT, WRONG)
    lesson = Lesson("a-1", "q", tuple(map(str, range(len(labels)))), labels)
    sample = sample_texts(lesson, 7, 0)
    assert [sample.labels.count(label) for label in (RIGHT, WRONG, OUTDATED)] == [2, 7, 1]
    assert "29" in sample.texts
    assert sample == sample_texts(lesson, 7, 0) != sample_texts(lesson, 7, 1)


def test_the_loss_falls_when_the_right_text_leads_and_the_outdated_one_follows() -> None:
    labels = torch.tensor([[RIGHT, OUTDATED, WRONG, -100]])
    orders = [[3.0, 1.0, -3.0, -100.0], [1.0, 3.0, -3.0, -100.0], [-3.0, 1.0, 3.0, -100.0]]
    losses = [lesson_loss(torch.tensor([order]), labels, 0.3).item() for order in orders]
    assert losses == sorted(losses)
    nothing = lesson_loss(torch.tensor([[-4.0, -4.0]]), torch.tensor([[WRONG, WRONG]]), 0.3)
    assert 0 < nothing < lesson_loss(torch.tensor([[4.0, 4.0]]), torch.tensor([[WRONG, WRONG]]), 0.3)


def test_a_right_text_must_also_beat_the_rival_that_nothing_is_there() -> None:
    labels = torch.tensor([[RIGHT, WRONG, -100]])
    likely, unlikely = torch.tensor([[4.0, -4.0, -100.0]]), torch.tensor([[-4.0, -12.0, -100.0]])
    alone = [lesson_loss(logits, labels, 0.0).item() for logits in (likely, unlikely)]
    beside = [lesson_loss(logits, labels, 0.0, absent_rival=True).item() for logits in (likely, unlikely)]
    assert alone[0] == pytest.approx(alone[1])
    assert beside[0] < 0.1 < 3.0 < beside[1]


def test_where_no_text_is_right_not_there_must_win_over_all() -> None:
    labels = torch.tensor([[WRONG, WRONG, -100]])
    unlikely, likely = torch.tensor([[-6.0, -4.0, -100.0]]), torch.tensor([[-6.0, 4.0, -100.0]])
    assert lesson_loss(likely, labels, 0.0).item() == 0
    losses = [lesson_loss(logits, labels, 0.0, absent_rival=True).item() for logits in (unlikely, likely)]
    assert losses[0] < 0.1 < 3.0 < losses[1]


def test_questions_without_a_right_or_a_wrong_text_leave_the_gradient_finite() -> None:
    logits = torch.zeros(3, 3, requires_grad=True)
    labels = torch.tensor([[RIGHT, RIGHT, -100], [WRONG, OUTDATED, WRONG], [OUTDATED, OUTDATED, RIGHT]])
    loss = lesson_loss(logits, labels, 0.3, absent_rival=False)
    loss.backward()
    assert loss.isfinite()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert logits.grad[0, 2] == 0


BATCH = {
    "query": torch.tensor([[2, 5, 0], [2, 6, 7]]),
    "texts": torch.tensor([[[2, 5, 6, 9], [2, 7, 0, 0]], [[2, 6, 5, 8], [0, 0, 0, 0]]]),
    "labels": torch.tensor([[RIGHT, WRONG], [WRONG, -100]]),
}


def new_learner(base: Path) -> PairLearner:
    return PairLearner(*base_weights(base, 1), RerankerRecipe(split_layers=1, absent_rival=True))


def test_a_step_computes_on_the_device_of_the_weights(base: Path) -> None:
    """A meta tensor cannot be combined with one of the CPU, so nothing that is computed was left there."""
    learner = new_learner(base).to("meta")
    result = learner(**BATCH)
    result["loss"].backward()
    assert result["logits"].is_meta
    assert all(weight.grad is not None and weight.grad.is_meta for weight in learner.learned.values())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_computes_the_losses_and_gradients_of_a_cpu(base: Path) -> None:
    learner = new_learner(base).eval()  # no token is left out
    results = {}
    for device in ("cpu", "cuda"):
        learner.zero_grad()
        result = learner.to(device)(**{name: value.to(device) for name, value in BATCH.items()})
        result["loss"].backward()
        gradients = torch.cat([weight.grad.flatten().cpu() for weight in learner.learned.values()])
        results[device] = result["logits"].detach().cpu(), gradients
    for on_cpu, on_gpu in zip(*results.values(), strict=True):
        torch.testing.assert_close(on_gpu, on_cpu, atol=1e-3, rtol=1e-2)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_trains_in_bfloat16(base: Path, tmp_path: Path) -> None:
    data = write_people(tmp_path / "people", "a-1", "a-2", "b-1")
    result = train(make_job(base, data, tmp_path / "run", epochs=15, precision="bfloat16"))
    assert result.measures["mrr"] > 0.9


def test_a_trained_reranker_finds_the_evidence_of_other_people(base: Path, tmp_path: Path) -> None:
    data = write_people(tmp_path / "people", "a-1", "a-2", "b-1")
    result = train(make_job(base, data, tmp_path / "run", epochs=15))
    assert result.measures["mrr"] > 0.9
    report = json.loads((tmp_path / "run" / "run.json").read_text())
    assert set(report["found"]) == {"recall@5", "recall@10", "mrr"}
    assert sorted(report["data"]) == ["a-1.json", "a-2.json", "b-1.json"]
    texts = [f"User: My {animal} is big.\nAssistant: I see." for animal in ("dog", "goat", "hen")]
    scores = reranker(str(tmp_path / "run"), "auto").score("What about the goat?", texts)
    assert max(scores) == scores[1]


def test_a_resumed_run_ends_with_the_same_weights(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = write_people(tmp_path / "people", "a-1", "b-1")
    train(make_job(base, data, tmp_path / "whole", epochs=3))
    calls = count()

    class Interrupted(reranker_training.Measures):
        def __call__(self, *arguments: object) -> dict[str, float]:
            if next(calls) == 1:
                raise KeyboardInterrupt
            return super().__call__(*arguments)  # type: ignore[arg-type]  # passed on as they came

    with monkeypatch.context() as patch:
        patch.setattr(reranker_training, "Measures", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(make_job(base, data, tmp_path / "parts", epochs=3))
    assert (tmp_path / "parts" / CHECKPOINTS).is_dir()
    train(make_job(base, data, tmp_path / "parts", epochs=3, resume=True))
    files = [tmp_path / name / "reranker.safetensors" for name in ("whole", "parts")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_run_starts_from_a_reranker_and_ends_as_the_mean_with_one(base: Path, tmp_path: Path) -> None:
    data = write_people(tmp_path / "people", "a-1", "b-1")
    first, second, started, mean = (tmp_path / name for name in ("first", "second", "started", "mean"))
    train(make_job(base, data, first, epochs=2))
    train(make_job(base, data, second, epochs=1, seed=3))
    train(make_job(base, data, started, epochs=1, start=first, learning_rate=1e-12))
    train(make_job(base, data, mean, epochs=1, seed=3, average=first))
    settings = read_json(first / "reranker.json", RerankerSettings)
    weights = [read_reranker(folder, settings) for folder in (first, second, started, mean)]
    for name in weights[0]:
        one, other, again, both = (each[name] for each in weights)
        step = float(one.abs().max() + other.abs().max()) / 127 + 1e-6  # of the int8 and float16 numbers stored
        torch.testing.assert_close(again, one, atol=step, rtol=0)
        torch.testing.assert_close(both, (one + other) / 2, atol=step, rtol=0)
    assert not torch.allclose(weights[0]["head.product"], weights[1]["head.product"])


def test_a_reranker_of_another_base_is_no_start(base: Path, tmp_path: Path) -> None:
    data = write_people(tmp_path / "people", "a-1", "b-1")
    train(make_job(base, data, tmp_path / "first", epochs=1))
    file = tmp_path / "first" / "reranker.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"split": 2}))
    with pytest.raises(BadSettings, match="split at 2"):
        train(make_job(base, data, tmp_path / "run", start=tmp_path / "first"))


def test_data_without_questions_is_refused(tmp_path: Path) -> None:
    folder = write_people(tmp_path / "people", "a-1")
    person = json.loads((folder / "a-1.json").read_text())
    (folder / "a-1.json").write_text(json.dumps(person | {"probes": []}))
    with pytest.raises(BadInput, match="no question with evidence"):
        lessons_of(folder)
