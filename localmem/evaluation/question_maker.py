"""Questions about sessions, written by the backbone, for data without any (SeCom, appendix A.7).

The result are lines of the data set `jsonl`: each session, then its questions with their answers and the turn that
holds each. A question is dropped where it copies the prompt, gives its answer away, or its answer does not stand in
that turn. Depends on no system and no data set's format.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from localmem.evaluation.episodes import Episode
from localmem.evaluation.metrics.text import overlap
from localmem.grounding.gate import is_usable
from localmem.llm.base import LLM
from localmem.llm.structured_output import answer_format, array, generate_usable, integer, record, string
from localmem.prompts import render
from localmem.types import Prompt, Session

_QUESTION, _ANSWER = 200, 80  # most characters
_STANDS = 0.5  # the share of an answer's words that its turn must hold


def question_lines(llm: LLM, episode: Episode, number: int, counts: Counter[str]) -> Iterator[dict[str, object]]:
    """The episode's sessions, and at most `number` questions about each; `counts` has what was made and dropped."""
    prompts = [_prompt(session, number) for session in episode.sessions]
    answers = generate_usable(llm, prompts, counts)
    for session, prompt, answer in zip(episode.sessions, prompts, answers, strict=True):
        turns = [
            {"role": turn.role, "speaker": turn.speaker, "text": turn.text, "time": turn.time.isoformat()}
            for turn in session.turns
        ]
        yield {"user": episode.id, "id": session.id, "time": session.turns[0].time.isoformat(), "turns": turns}
        questions = json.loads(answer.text)["questions"] if answer else []
        for place, question in enumerate(_sound(session, prompt, questions, counts), start=1):
            yield {"user": episode.id, "id": f"{session.id}/q{place}", "type": "made", **question}


def _prompt(session: Session, number: int) -> Prompt:
    last = len(session.turns) - 1
    question = record(question=string(_QUESTION), answer=string(_ANSWER), message=integer(0, last))
    dialogue = "\n".join(f"[{place}] {turn.speaker}: {turn.text}" for place, turn in enumerate(session.turns))
    form = answer_format(questions=array(question, number))
    return render("evaluation/questions", form=form, dialogue=dialogue, last=str(last))


def _sound(
    session: Session, prompt: Prompt, questions: Sequence[Mapping[str, object]], counts: Counter[str]
) -> Iterator[dict[str, object]]:
    for item in questions:
        question, answer = (" ".join(str(item[name]).split()) for name in ("question", "answer"))
        place = int(str(item["message"]))
        if not is_usable(prompt, question):
            counts["questions dropped: unusable, or copied from the instructions"] += 1
        elif overlap(question, answer).recall == 1:
            counts["questions dropped: they give the answer away"] += 1
        elif overlap(session.turns[place].text, answer).recall < _STANDS:
            counts["questions dropped: the answer does not stand in the turn"] += 1
        else:
            counts["questions made"] += 1
            yield {"question": question, "answer": answer, "evidence": [f"{session.id}.{place}"]}
