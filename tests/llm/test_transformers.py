"""What only the in-process model does: batches, reused prefixes, adapters at run time, errors."""

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from localmem.errors import BadInput, BadSettings, ModelMissing
from localmem.llm.transformers import TransformersLLM
from localmem.types import Message, Prompt
from tests.llm.prompts import ask, collect


@pytest.mark.slow
def test_a_seed_repeats_its_answer_in_any_batch(transformers_llm: TransformersLLM) -> None:
    prompts = [ask(f"Tell me about the number {n}.", temperature=1.0, seed=n, max_tokens=24) for n in range(4)]
    alone = [transformers_llm.generate([prompt])[0].text for prompt in prompts]
    company = [ask("word " * (20 * n), temperature=1.0, seed=n, max_tokens=4 * n + 1) for n in range(8)]
    mixed = transformers_llm.generate([*company[:4], *prompts, *company[4:]])
    assert [completion.text for completion in mixed[4:8]] == alone
    with ThreadPoolExecutor(12) as pool:
        busy = [pool.submit(transformers_llm.generate, [prompt]) for prompt in company]
        streamed = pool.map(lambda prompt: collect(transformers_llm.stream(prompt))[1].text, prompts)
        assert list(streamed) == alone
        assert all(completion.result() for completion in busy)
    assert transformers_llm.active == 0


def test_a_dialogue_is_read_from_where_it_differs(transformers_llm: TransformersLLM) -> None:
    messages = (Message("system", "You are a sailor, and " + "patient " * 60), Message("user", "Where are you from?"))
    first = transformers_llm.generate([Prompt("test/dialogue", messages, max_tokens=12)])[0]
    longer = (*messages, Message("assistant", first.text), Message("user", "And where to?"))
    second = transformers_llm.generate([Prompt("test/dialogue", longer, max_tokens=12)])[0]
    assert second.usage.cached >= first.usage.input
    fresh = Prompt("test/dialogue", (Message("system", "Other"), *longer[1:]), max_tokens=12)
    assert transformers_llm.generate([fresh])[0].usage.cached == 0


def test_an_answer_goes_on_from_its_prefill(transformers_llm: TransformersLLM) -> None:
    text = transformers_llm.generate([ask(max_tokens=12)])[0].text
    head = text[: text.index(" ", len(text) // 3)]
    pieces, completion = collect(transformers_llm.stream(replace(ask(max_tokens=4), prefill=head)))
    assert "".join(pieces) == completion.text
    assert completion.text
    assert text.startswith(head + completion.text)


def test_a_slow_reader_does_not_delay_others(transformers_llm: TransformersLLM) -> None:
    slow = transformers_llm.stream(ask(max_tokens=30))
    begun = next(slow)
    complete = transformers_llm.generate([ask(max_tokens=30)])[0].text
    pieces, completion = collect(slow)
    assert begun + "".join(pieces) == completion.text == complete


def test_a_thread_that_gives_up_leaves_its_work_to_none(transformers_llm: TransformersLLM) -> None:
    remaining = transformers_llm.stream(ask(max_tokens=40))
    next(remaining)
    given_up = [transformers_llm.stream(ask(max_tokens=900, seed=n, temperature=1.0)) for n in range(3)]
    for stream in given_up:
        next(stream)
    assert transformers_llm.active == 4
    given_up.clear()  # as a server does whose client hangs up: the generators are simply dropped
    del stream
    assert transformers_llm.active == 1
    assert collect(remaining)[1].usage.output == 40
    assert transformers_llm.active == 0


def test_adapters_are_mixed_in_a_batch(transformers_llm: TransformersLLM, random_adapter: Path) -> None:
    transformers_llm.load_adapter("one", random_adapter)
    transformers_llm.load_adapter("two/exact", random_adapter)
    names = ["one/a", "none/a", "two/exact", "two/other"]
    mixed = [completion.text for completion in transformers_llm.generate([ask(name=name) for name in names])]
    alone = [transformers_llm.generate([ask(name=name)])[0].text for name in names]
    assert mixed == alone
    assert mixed[0] == mixed[2] != mixed[1] == mixed[3]


def test_fields_that_are_not_followed_are_named_once(
    transformers_llm: TransformersLLM, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        transformers_llm.generate([ask(max_tokens=1, extra={"best_of": 2, "top_p": 0.9})] * 2)
        transformers_llm.generate([ask(max_tokens=1, extra={"best_of": 2})])
    assert [record.getMessage() for record in caplog.records] == [
        "prompt 'test/ask': an in-process model ignores the field 'best_of'"
    ]


@pytest.mark.parametrize("extra", [{"top_p": "much"}, {"top_k": True}, {"top_p": 7.0}, {"presence_penalty": []}])
def test_invalid_sampling_fields_raise(transformers_llm: TransformersLLM, extra: dict[str, object]) -> None:
    with pytest.raises(BadInput, match="'test/ask'"):
        transformers_llm.generate([ask(temperature=1.0, extra=extra)])


def test_penalties_change_the_answer(transformers_llm: TransformersLLM) -> None:
    plain = transformers_llm.generate([ask("Say la la la la la", max_tokens=30)])[0].text
    fined = ask("Say la la la la la", max_tokens=30, extra={"frequency_penalty": 2.0, "presence_penalty": 2.0})
    fined_words = transformers_llm.generate([fined])[0].text.split()
    assert len(set(fined_words)) / len(fined_words) > len(set(plain.split())) / len(plain.split())


@pytest.mark.parametrize("word", ["uniqueItems", "multipleOf", "contains", "not"])
def test_schemas_that_decoding_cannot_enforce_raise(transformers_llm: TransformersLLM, word: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array", word: {}}}, "required": ["a"]}
    for attempt in (lambda prompt: transformers_llm.generate([prompt]), transformers_llm.check):
        with pytest.raises(BadInput, match=f"the decoder does not enforce {word}"):
            attempt(ask(schema=schema))
    named = {"type": "object", "properties": {word: {"const": 1}}, "required": [word]}
    assert transformers_llm.generate([ask(schema=named, max_tokens=30)])[0].text == f'{{"{word}": 1}}'


def test_loading_errors_are_one_line(tmp_path: Path, starter_llm_dir: Path) -> None:
    with pytest.raises(ModelMissing, match="localmem models pull"):
        TransformersLLM(tmp_path, name="none")
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(ModelMissing, match="localmem models verify"):
        TransformersLLM(tmp_path, name="broken")
    with pytest.raises(BadSettings, match="unknown device 'gpu'"):
        TransformersLLM(starter_llm_dir, name="starter", device="gpu")
    with pytest.raises(BadSettings, match="unknown dtype 'int3'"):
        TransformersLLM(starter_llm_dir, name="starter", dtype="int3")


def test_an_adapter_of_another_model_raises(transformers_llm: TransformersLLM, tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    small = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)
    other = get_peft_model(LlamaForCausalLM(small), LoraConfig(r=2, target_modules=["q_proj"]))
    other.save_pretrained(str(tmp_path))
    before = transformers_llm.generate([ask()])[0].text
    for _ in range(2):
        with pytest.raises(BadSettings, match="does not fit the model"):
            transformers_llm.load_adapter("misfit", tmp_path)
    assert transformers_llm.generate([ask(name="misfit/ask")])[0].text == before


def test_half_precision_gives_similar_probabilities(starter_llm_dir: Path, transformers_llm: TransformersLLM) -> None:
    half = TransformersLLM(starter_llm_dir, name="starter", context_length=1024, device="cpu", dtype="bfloat16")
    prompts = [ask(text, choice=("yes", "no")) for text in ("Is the sea wet?", "Can stones swim?", "Is it so?")]
    for mine, theirs in zip(half.generate(prompts), transformers_llm.generate(prompts), strict=True):
        assert mine.choices is not None
        assert theirs.choices is not None
        assert mine.choices["yes"] == pytest.approx(theirs.choices["yes"], abs=0.15)
