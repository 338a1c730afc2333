"""Two rules without a language model for every stage: what a student must beat to have learned anything.

For choices the most frequent option, and a bag of words; for segments a whole session, and every two exchanges; for
texts the most frequent answer, and that to the most similar prompt. They learn from the same lessons as the student.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from finetune.grading import SEGMENT, Answer, read_segments
from finetune.traces.trace import Trace
from localmem.segmentation.segmenters import segments_json
from localmem.text.parse import words
from localmem.types import Completion


def trivial_rules(stage: str, lessons: Sequence[Trace]) -> Mapping[str, Answer]:
    """The two rules of a stage by name, made from at least one lesson."""
    answers = [trace.answer if trace.metadata.gold is None else trace.metadata.gold for trace in lessons]
    if stage == SEGMENT:
        return {
            "one segment": lambda trace: _segments(trace, 0),
            "every two exchanges": lambda trace: _segments(trace, 2),
        }
    frequent = Counter(answers).most_common(1)[0][0]
    if lessons[0].metadata.options and len(set(answers)) > 1:
        return {"majority": lambda _: Completion(frequent), "bag of words": _bag_of_words(lessons, answers)}
    return {"majority": lambda _: Completion(frequent), "most similar prompt": _nearest(lessons, answers)}


def _marked_words(trace: Trace) -> list[str]:
    """The words of a prompt's inputs, each with the name of its input; without inputs those of the last message."""
    inputs = trace.metadata.inputs or {"": trace.context[-1].content}
    return [f"{name}={word}" for name, text in inputs.items() for word in words(text)]


def _segments(trace: Trace, size: int) -> Completion:
    last = max((segment.stop for segment in read_segments(trace.answer) or ()), default=1)
    step = size or last
    return Completion(segments_json([range(start, min(start + step, last)) for start in range(0, last, step)]))


def _bag_of_words(lessons: Sequence[Trace], answers: Sequence[str]) -> Answer:
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    model = make_pipeline(CountVectorizer(analyzer=_marked_words), LogisticRegression(max_iter=2000))
    model.fit(lessons, answers)
    return lambda trace: Completion(str(model.predict([trace])[0]))


def _nearest(lessons: Sequence[Trace], answers: Sequence[str]) -> Answer:
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(analyzer=_marked_words)
    vectors = vectorizer.fit_transform(lessons)

    def answer(trace: Trace) -> Completion:
        scores = (vectors @ vectorizer.transform([trace]).T).toarray()
        return Completion(answers[int(scores.argmax())])

    return answer
