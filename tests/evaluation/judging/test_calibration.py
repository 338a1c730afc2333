"""The figures of a calibration, worked out by hand, and the shipped labelled sets."""

import dataclasses
import json
from collections import Counter
from pathlib import Path

import pytest

from localmem.config import Settings, load_settings
from localmem.errors import BadInput
from localmem.evaluation import DATA
from localmem.evaluation.judging import calibration
from localmem.evaluation.judging.calibration import (
    FILE,
    Calibration,
    Label,
    LabelledSet,
    ModelIdentity,
    calibrate_judge,
    find_calibration,
    model_identity,
    nli_identity,
    read_labelled_set,
    save_calibration,
)
from localmem.evaluation.judging.judges import JUDGES, Judge, Pair, Words
from localmem.evaluation.judging.verdicts import Verdict
from localmem.prompts import load

SETS = DATA / "calibration"


def labelled_set(*lines: Label) -> LabelledSet:
    return LabelledSet("by hand", "0" * 64, lines)


def answer(label: str, kind: str, gold: str = "Porto") -> Label:
    return Label(item={"question": "Where?", "gold": gold, "answer": "A"}, label=label, kind=kind)


def verdicts_for(judge: Judge, *labels: str | None) -> list[Verdict]:
    return [
        Verdict(label, {scale: float(scale == label) for scale in judge.scales} if label else {}) for label in labels
    ]


def test_accuracy_kappa_and_what_is_let_pass() -> None:
    judge = JUDGES["correct"]
    lines = labelled_set(
        answer("correct", "right"),
        answer("correct", "right"),
        answer("incorrect", "vague"),
        answer("incorrect", "vague"),
        answer("incorrect", "irrelevant"),
        answer("abstained", "abstained, rightly", gold=""),
    )
    figures = calibrate_judge(
        judge, lines, verdicts_for(judge, "correct", "incorrect", "correct", "incorrect", "incorrect", "abstained")
    )
    assert figures.accuracy is not None
    assert figures.accuracy.mean == pytest.approx(4 / 6)
    # chance: correct 2/6 x 2/6, incorrect 3/6 x 3/6, abstained 1/6 x 1/6 = 14/36; (24/36 - 14/36) / (22/36)
    assert figures.agreement == pytest.approx(10 / 22)
    assert figures.passed == {"vague": 0.5, "irrelevant": 0.0}
    assert figures.kinds["vague"] == (2, 1)
    assert figures.confusion["incorrect"] == {"correct": 1, "incorrect": 2}
    assert figures.line == "not believable: kappa 0.45 [-0.50, 1.00], and it accepts 50% of the vague wrong answers"


def test_an_abstention_that_is_taken_for_right_counts_as_passed_only_where_it_was_not() -> None:
    judge = JUDGES["correct"]
    lines = labelled_set(answer("abstained", "abstained"), answer("incorrect", "invented", gold=""))
    figures = calibrate_judge(judge, lines, verdicts_for(judge, "correct", "abstained"))
    assert figures.passed == {"abstained": 1.0, "invented": 1.0}


def test_who_agrees_is_believed_but_not_who_passes_vague_answers() -> None:
    judge = JUDGES["correct"]
    labels = ["correct"] * 10 + ["incorrect"] * 10
    lines = labelled_set(*(answer(label, "right" if label == "correct" else "wrong") for label in labels))
    figures = calibrate_judge(judge, lines, verdicts_for(judge, *labels))
    assert (figures.believable, figures.line) == (True, "believable: kappa 1.00 [1.00, 1.00]")
    vague = labelled_set(*lines.lines, *(answer("incorrect", "vague") for _ in range(4)))
    kind = calibrate_judge(judge, vague, verdicts_for(judge, *labels, "correct", "incorrect", "incorrect", "incorrect"))
    assert kind.agreement > 0.9
    assert not kind.believable


def test_an_item_without_a_verdict_is_missed() -> None:
    judge = JUDGES["entailment"]
    lines = labelled_set(*(Label(item={"past": "p", "answer": "a"}, label=label) for label in ("entail", "neutral")))
    figures = calibrate_judge(judge, lines, verdicts_for(judge, "entail", None))
    assert figures.unusable == 1
    assert figures.accuracy is not None
    assert figures.accuracy.mean == 0.5
    assert figures.confusion["neutral"] == {"no verdict": 1}


def test_a_judge_that_always_says_the_same_shows_nothing() -> None:
    judge = JUDGES["entailment"]
    lines = labelled_set(*(Label(item={"past": "p", "answer": "a"}, label="entail") for _ in range(3)))
    assert calibrate_judge(judge, lines, verdicts_for(judge, "entail", "entail", "entail")).agreement == 0.0


def test_position_bias_is_the_share_of_samples_that_flip_and_the_place_they_name() -> None:
    judge = JUDGES["preference"]
    item = {"dialogue": "d", "answer": "a", "other": "b"}
    lines = labelled_set(*(Label(item=item, label=label) for label in ("first", "second", "tie", "first")))
    scores = {"first": 0.0, "second": 0.0, "tie": 1.0}
    verdicts = [
        Verdict("first", {**scores, "first": 1.0}, {"first": 3}),
        Verdict("tie", scores, {"flip to 1": 2, "second": 1}),
        Verdict("tie", scores, {"flip to 2": 1, "tie": 2}),
        Verdict("tie", scores, {"flip to 1": 3}),
    ]
    figures = calibrate_judge(judge, lines, verdicts)
    assert figures.flipped == pytest.approx(6 / 12)
    assert figures.favoured == {"1": pytest.approx(5 / 6), "2": pytest.approx(1 / 6)}
    assert figures.accuracy is not None
    assert figures.accuracy.mean == 0.5


def test_numbers_are_measured_by_their_order() -> None:
    judge = JUDGES["score"]
    item = {"question": "q", "answer": "a"}
    lines = labelled_set(*(Label(item=item, scores={"score": score}) for score in (0, 0, 60, 100) * 3))
    figures = calibrate_judge(judge, lines, [Verdict(scores={"score": score}) for score in (5, 15, 20, 90) * 3])
    assert figures.agreement == figures.spearman["score"] > 0.9
    assert figures.means == {"score": {"0": 10.0, "60": 20.0, "100": 90.0}}
    assert figures.low is not None
    assert 0.4 < figures.low < figures.agreement
    assert figures.line.startswith(f"believable: mean Spearman {figures.agreement:.2f} [{figures.low:.2f}, ")
    level = calibrate_judge(judge, lines, [Verdict(scores={"score": 60.0})] * 12)
    assert (level.agreement, level.believable) == (0.0, False)


def test_several_scales_are_averaged() -> None:
    judge = JUDGES["rating"]
    item = {"dialogue": "d", "answer": "a"}
    rows = [{"fluency": n, "coherence": n, "consistency": n} for n in (1.0, 50.0, 100.0)]
    lines = labelled_set(*(Label(item=item, scores=row) for row in rows))
    numbers = [Verdict(scores={**row, "consistency": 101.0 - row["consistency"]}) for row in rows]
    assert calibrate_judge(judge, lines, numbers).agreement == pytest.approx((1 + 1 - 1) / 3)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{oops", "line 2: Invalid JSON"),
        ('{"item": {"question": "q"}, "label": "correct"}', "add gold, answer"),
        ('{"item": {"question": "q", "gold": "g", "answer": "a"}, "label": "good"}', "the label is 'good'"),
        ('{"item": {"question": "q", "gold": "", "answer": "a"}, "label": "correct"}', "can get incorrect, abstained"),
        ('{"item": {"question": "q"}, "label": "correct", "mood": 1}', "mood"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "labelled.jsonl"
    good = {"item": {"question": "q", "gold": "g", "answer": "a"}, "label": "correct"}
    path.write_text(f"{json.dumps(good)}\n{line}\n")
    with pytest.raises(BadInput, match=message) as caught:
        read_labelled_set(path, JUDGES["correct"])
    assert f"{path}, line 2" in str(caught.value)


def test_scores_must_be_those_of_the_judge(tmp_path: Path) -> None:
    path = tmp_path / "labelled.jsonl"
    path.write_text(json.dumps({"item": {"question": "q", "answer": "a"}, "scores": {"beauty": 3}}))
    with pytest.raises(BadInput, match="this judge gives score"):
        read_labelled_set(path, JUDGES["score"])
    path.write_text("\n")
    with pytest.raises(BadInput, match="does not contain labelled verdicts"):
        read_labelled_set(path, JUDGES["score"])
    with pytest.raises(BadInput, match="cannot read"):
        read_labelled_set(tmp_path / "none.jsonl", JUDGES["score"])


# -- the shipped sets


@pytest.mark.parametrize("name", JUDGES)
def test_every_judge_has_a_labelled_set_with_every_label(name: str) -> None:
    judge = JUDGES[name]
    lines = read_labelled_set(SETS / f"{name}.jsonl", judge).lines
    assert len(lines) >= (60 if name == "correct" else 20)
    assert len({json.dumps(line.item, sort_keys=True) for line in lines}) == len(lines)
    assert all(line.kind for line in lines)
    if isinstance(judge.verdict, Words | Pair):
        options = judge.verdict.options if isinstance(judge.verdict, Words) else judge.scales
        assert {line.label for line in lines} == set(options)
    else:
        low, high = judge.verdict.low, judge.verdict.high
        for scale in judge.scales:
            numbers = [line.scores[scale] for line in lines]
            assert low <= min(numbers) < max(numbers) <= high


def test_the_set_of_answers_tells_the_kinds_of_mistakes_apart() -> None:
    lines = read_labelled_set(SETS / "correct.jsonl", JUDGES["correct"]).lines
    kinds = Counter(line.kind for line in lines)
    for kind in ("right", "paraphrase", "wrong", "outdated", "vague", "irrelevant", "abstained", "abstained, rightly"):
        assert kinds[kind] >= 3, kind
    assert kinds["vague"] >= 10
    assert {line.label for line in lines if line.kind in ("vague", "outdated", "irrelevant")} == {"incorrect"}


def test_neither_place_is_the_better_one_in_the_sets_of_pairs() -> None:
    for name in ("preference", "consistency", "memorability", "helpfulness"):
        labels = Counter(line.label for line in read_labelled_set(SETS / f"{name}.jsonl", JUDGES[name]).lines)
        assert min(labels["first"], labels["second"]) >= 5, name


JUDGE = JUDGES["entailment"]
MODEL = ModelIdentity("small", "a" * 64)
LABELLED = LabelledSet(
    "by hand", "b" * 64, tuple(Label(item={"past": "p", "answer": "a"}, label=label) for label in ("entail", "neutral"))
)


def figures() -> Calibration:
    return calibrate_judge(JUDGE, LABELLED, [Verdict(label, {label: 1.0}) for label in ("entail", "neutral")])


def test_what_was_kept_is_found_as_it_was(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert find_calibration(data, JUDGE, MODEL) is None
    save_calibration(data, JUDGE, MODEL, LABELLED, 0, figures())
    assert find_calibration(data, JUDGE, MODEL) == figures()
    assert [path.name for path in data.iterdir()] == [FILE]


def test_another_model_judge_or_number_of_samples_is_uncalibrated(tmp_path: Path) -> None:
    save_calibration(tmp_path, JUDGE, MODEL, LABELLED, 0, figures())
    assert find_calibration(tmp_path, JUDGE, ModelIdentity("small", "c" * 64)) is None
    assert find_calibration(tmp_path, JUDGE, ModelIdentity("large", MODEL.checksum)) is None
    assert find_calibration(tmp_path, JUDGE.with_samples(3), MODEL) is None
    assert find_calibration(tmp_path, JUDGES["correct"], MODEL) is None


def test_a_changed_prompt_is_uncalibrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_calibration(tmp_path, JUDGE, MODEL, LABELLED, 0, figures())
    changed = load(JUDGE.prompt).model_copy(update={"digest": "d" * 64})
    monkeypatch.setattr(calibration, "load", lambda _: changed)
    assert find_calibration(tmp_path, JUDGE, MODEL) is None


def test_a_later_calibration_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    save_calibration(tmp_path, JUDGE, MODEL, LABELLED, 0, figures())
    other = dataclasses.replace(figures(), agreement=0.25)
    save_calibration(tmp_path, JUDGE, MODEL, LABELLED, 1, other)
    save_calibration(tmp_path, JUDGE, ModelIdentity("large", ""), LABELLED, 1, figures())
    assert find_calibration(tmp_path, JUDGE, MODEL) == other
    assert find_calibration(tmp_path, JUDGE, ModelIdentity("large", "")) == figures()


def test_a_file_of_something_else_is_one_line(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"a": 1}')
    with pytest.raises(BadInput, match="run `localmem eval calibrate` again"):
        find_calibration(tmp_path, JUDGE, MODEL)


def test_the_model_is_the_backbone_with_its_checksum() -> None:
    settings = load_settings()
    model = model_identity(settings)
    assert model.name == settings.model
    assert len(model.checksum) == 64


def test_weights_behind_a_url_are_not_seen() -> None:
    assert model_identity(Settings(llm={"url": "http://127.0.0.1:1", "served_as": "big"})) == ModelIdentity("big", "")  # type: ignore[arg-type]  # checked by pydantic


def test_an_adapter_for_judges_makes_another_model(tmp_path: Path) -> None:
    folder = tmp_path / "strict"
    folder.mkdir()
    (folder / "adapter.bin").write_text("weights")
    settings = Settings(llm={"adapters": {"judge": folder}})  # type: ignore[arg-type]  # checked by pydantic
    plain, tuned = model_identity(settings), model_identity(settings, JUDGE)
    assert tuned.name == f"{plain.name}+strict"
    assert tuned.checksum != plain.checksum
    (folder / "adapter.bin").write_text("others")
    assert model_identity(settings, JUDGE).checksum != tuned.checksum


def test_an_nli_model_in_a_folder_has_a_checksum_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_text("weights")
    assert len(nli_identity(str(tmp_path)).checksum) == 64


def test_two_numbers_of_twenty_five_that_agree_are_not_believed() -> None:
    judge = JUDGES["score"]
    lines = labelled_set(
        *(Label(item={"question": "q", "answer": "a"}, scores={"score": 4.0 * number}) for number in range(25))
    )
    verdicts = [Verdict(scores={"score": 4.0 * n}) if n in (0, 24) else Verdict() for n in range(25)]
    figures = calibrate_judge(judge, lines, verdicts)
    assert (figures.unusable, figures.believable) == (23, False)
    assert figures.agreement < 0.6
