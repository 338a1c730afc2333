"""What a trace says of who answered it: another teacher, an adapter, a sample; and which of them remains."""

from dataclasses import replace
from pathlib import Path

from finetune.traces.chat_import import import_chats
from finetune.traces.collector import Collector, Samples
from finetune.traces.filtering import agrees_with, best_samples, filter_traces, find_problem, pair_samples
from finetune.traces.trace import Teacher, Trace, read_traces
from localmem.evaluation.answers import Work
from localmem.llm.scripted import ScriptedLLM
from localmem.types import Choice, Message, Prompt
from tests.finetune.traces.test_import_chats import ANSWER, CONTEXT, write

WORK = Work("theanine", "made", "e1")
PROMPT = Prompt("theanine/refine", (Message("user", "Ana flew a kite in Porto."),))


def collected(folder: Path, teacher: Teacher, samples: Samples = Samples(), prompt: Prompt = PROMPT) -> list[Trace]:  # noqa: B008
    llm = ScriptedLLM(lambda prompt: "Ana flew." if prompt.temperature else "Ana flew a kite.")
    with Collector(folder, teacher, samples=samples) as collector:
        collector.wrap(llm, WORK).generate([prompt])
    return read_traces(folder / "refine.jsonl")


def test_two_teachers_answers_to_one_prompt_are_two_traces(tmp_path: Path) -> None:
    collected(tmp_path, Teacher("big"))
    collected(tmp_path, Teacher("bigger"))
    traces = collected(tmp_path, Teacher("big"))  # asked again, not written again
    assert [trace.metadata.teacher for trace in traces] == ["big", "bigger"]
    assert len({trace.id for trace in traces}) == 2


def test_the_adapter_that_answered_is_named(tmp_path: Path) -> None:
    adapters = {"theanine": "refiner 0123", "rsum/update": "other"}
    plain = collected(tmp_path, Teacher("big"))[0]
    adapted = collected(tmp_path, Teacher("big", adapters=adapters))[1]
    assert (plain.metadata.adapter, adapted.metadata.adapter) == ("", "refiner 0123")


def test_samples_are_taken_of_texts_only(tmp_path: Path) -> None:
    traces = collected(tmp_path, Teacher("big"), Samples(3, 0.7))
    assert [(trace.metadata.sample, trace.metadata.temperature) for trace in traces] == [(0, 0.0), (1, 0.7), (2, 0.7)]
    choice = replace(PROMPT, format=Choice(("Ana flew.", "Ana flew a kite.")))
    assert len(collected(tmp_path / "choice", Teacher("big"), Samples(3), choice)) == 1


def test_the_sample_nearest_to_gold_remains_else_the_one_that_is_judged_best(tmp_path: Path) -> None:
    first, second, _ = collected(tmp_path, Teacher("big"), Samples(3))
    assert best_samples([first, second]) == [first]
    scores = {first.id: 1.0, second.id: 2.0}
    assert best_samples([first, second], lambda trace: scores[trace.id]) == [second]
    first, second = (replace(t, metadata=replace(t.metadata, gold="Ana flew.")) for t in (first, second))
    assert best_samples([first, second]) == [second]
    assert filter_traces([first, second], "refine").dropped == {"another sample is better": 1}


def test_the_best_and_the_worst_answer_are_a_pair() -> None:
    right, wrong = (reply("Where do I live?", text, "Lisbon") for text in ("You live in Lisbon.", "You live in Porto."))
    wrong = replace(wrong, id="other")
    (pair,) = pair_samples([wrong, right], "respond")
    assert (pair.answer, pair.metadata.rejected) == ("You live in Lisbon.", "You live in Porto.")
    assert pair_samples([right, replace(right, id="again")], "respond") == []  # no better than the other
    assert pair_samples([wrong], "respond") == []


def test_other_answers_in_a_file_are_samples(tmp_path: Path) -> None:
    lines = [{"messages": [*CONTEXT, {**ANSWER, "content": text}]} for text in ("A kite.", "A boat.", "A kite.")]
    traces = import_chats(write(tmp_path, *lines), "respond")
    assert [trace.metadata.sample for trace in traces] == [0, 1, 0]
    assert traces[0].id == traces[2].id != traces[1].id


def reply(question: str, answer: str, gold: str | None = None) -> Trace:
    memory = Message("system", "Ana said: My brother moved to Porto. I live in Lisbon.")
    (trace,) = collected_reply(Prompt("rsum/respond", (memory, Message("user", question))), answer)
    return replace(trace, metadata=replace(trace.metadata, gold=gold))


def collected_reply(prompt: Prompt, answer: str) -> list[Trace]:
    from finetune.traces.trace import make_trace
    from localmem.types import Completion

    return [make_trace(prompt, Completion(answer), "", Teacher("big"), WORK)]


def test_honest_replies_stay_and_falsehoods_of_the_prompt_s_words_go() -> None:
    assert find_problem(reply("Where was I born?", "I haven't been told that yet."), "respond") is None
    assert find_problem(reply("What is the capital of France?", "Paris."), "respond") is None
    assert find_problem(reply("Where do I live?", "You live in Lisbon."), "respond") is None
    assert find_problem(reply("Where do I live?", "You live in Porto."), "respond") == "not supported by the prompt"


def test_a_human_answer_decides_where_there_is_one() -> None:
    assert find_problem(reply("Where do I live?", "In Lisbon it is.", "Lisbon"), "respond") is None
    assert (
        find_problem(reply("Where do I live?", "I don't know.", "Lisbon"), "respond") == "differs from the human answer"
    )
    assert find_problem(reply("Where was I born?", "In Lisbon.", ""), "respond") == "differs from the human answer"
    assert agrees_with("I don't know that.", "")
    assert agrees_with("You flew the red kite on 12 May.", "a red kite, on 12 May")
