"""Answers of a run as the files that other projects' own evaluation scripts read.

LongMemEval's `evaluate_qa.py` reads JSON lines of `question_id` and `hypothesis`. LoCoMo's `task_eval` reads one JSON
list of conversations whose questions carry the prediction as `NAME_prediction` and what was searched out as
`NAME_prediction_context`. Failed answers are empty in both: a scorer would take a mean without them.
"""

from collections.abc import Iterable, Sequence

from localmem.errors import BadInput
from localmem.evaluation.answers import Answer
from localmem.evaluation.datasets.locomo import CATEGORIES


def choose_answers(answers: Sequence[Answer], system: str, dataset: str | None) -> list[Answer]:
    """The answers of a system on a data set, by default the only one. Raises BadInput with what there is."""
    own = [answer for answer in answers if answer.work.system == system]
    if not own:
        systems = sorted({answer.work.system for answer in answers})
        raise BadInput(f"no answer of the system {system!r}; the run has {', '.join(systems) or 'none'}")
    names = sorted({answer.work.dataset for answer in own})
    if dataset not in names and (dataset or len(names) > 1):
        raise BadInput(f"--answers-to is {dataset!r}; give one of {', '.join(names)}")
    return [answer for answer in own if answer.work.dataset == (dataset or names[0])]


def hypotheses(answers: Iterable[Answer]) -> list[dict[str, str]]:
    """LongMemEval's records, for the answers of any data set."""
    return [{"question_id": answer.probe, "hypothesis": answer.text} for answer in answers]


def locomo_samples(answers: Iterable[Answer], name: str) -> list[dict[str, object]]:
    """LoCoMo's records, of answers to its questions; `name` is the model's in the field names."""
    numbers = {category: int(number) for number, category in CATEGORIES.items()}
    samples: dict[str, list[dict[str, object]]] = {}
    for answer in sorted(answers, key=lambda answer: (answer.work.episode, _question_number(answer))):
        record: dict[str, object] = {
            "question": answer.question,
            "answer": answer.gold[0] if answer.gold else "",
            "evidence": _dialogue_ids(answer.evidence),
            "category": numbers[answer.about],
            f"{name}_prediction": answer.text,
        }
        if context := _dialogue_ids(turn for unit in answer.units for turn in unit):
            record[f"{name}_prediction_context"] = context  # its scorer cannot read an empty one
        samples.setdefault(answer.work.episode, []).append(record)
    return [{"sample_id": sample, "qa": records} for sample, records in samples.items()]


def _question_number(answer: Answer) -> int:
    return int(answer.probe.rpartition("/q")[2])


def _dialogue_ids(turns: Iterable[str]) -> list[str]:
    """LoCoMo's own ids of turns, such as D1:3, each once."""
    return list(dict.fromkeys(turn.rpartition("/")[2] for turn in turns))
