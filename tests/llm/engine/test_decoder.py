"""Decoding in a changing batch, compared with decoding each prompt alone by a full forward pass for every token."""

import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
import transformers
from transformers import PreTrainedModel

from localmem.errors import LLMError
from localmem.llm.adapters import Adapters
from localmem.llm.base import AnswerText
from localmem.llm.engine.decoder import Decoder, Turns
from localmem.llm.engine.keyvalues import RowCache, use_row_attention
from localmem.llm.engine.row import Row, Sampler
from tests.llm.prompts import ask

VOCABULARY = 97
END = 2
CPU = torch.device("cpu")
SMALL: dict[str, object] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.3,
    "eos_token_id": END,
}
SLIDING: dict[str, object] = {"sliding_window": 8}
KINDS: dict[str, tuple[str, dict[str, object]]] = {
    "llama": ("LlamaConfig", {}),
    "qwen3": ("Qwen3Config", {"head_dim": 16}),
    "mistral, sliding window": ("MistralConfig", SLIDING),
    "gemma3, window in some layers": ("Gemma3TextConfig", SLIDING | {"head_dim": 8, "sliding_window_pattern": 2}),
    "lfm2, convolutions": ("Lfm2Config", {"full_attn_idxs": [1], "conv_L_cache": 3}),
}
JOINABLE = ("llama", "qwen3")


class Words:
    """Stands in for a tokenizer: a token is its number."""

    def add(self, token: int) -> str:
        return f"{token} "


@pytest.fixture(scope="module", params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def model(kind: str) -> PreTrainedModel:
    return small(kind)


@pytest.fixture(scope="module")
def llama() -> PreTrainedModel:
    return small("llama")


def small(kind: str) -> PreTrainedModel:
    torch.manual_seed(3)
    name, more = KINDS[kind]
    config = getattr(transformers, name)(**SMALL | more)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    if RowCache(model.config).joinable:
        use_row_attention(model)
    return model


def decoder(model: PreTrainedModel, *, limit: int = 4, prefix_tokens: int = 0) -> Decoder:
    return Decoder(Adapters(model), [END], limit=limit, prefix_tokens=prefix_tokens)


def row(ids: Sequence[int], limit: int = 12, *, background: bool = False, salt: str | None = None) -> Row:
    prompt = replace(ask(extra={"cache_salt": salt} if salt else None), background=background)
    return Row(
        prompt=prompt,
        ids=list(ids),
        limit=limit,
        ends=frozenset({END}),
        sampler=Sampler(prompt, ids, CPU),
        pieces=Words(),  # type: ignore[arg-type]
        text=AnswerText(()),
    )


def some_rows(count: int, seed: int = 0) -> list[Row]:
    chance = random.Random(seed)
    return [
        row([chance.randrange(3, VOCABULARY) for _ in range(chance.randrange(1, 40))], chance.randrange(1, 20))
        for _ in range(count)
    ]


@torch.inference_mode()
def plainly(model: PreTrainedModel, prompt_row: Row) -> list[int]:
    """The greedy answer, one full forward pass a token."""
    output: list[int] = []
    while len(output) < prompt_row.limit and (not output or output[-1] != END):
        logits = model(input_ids=torch.tensor([[*prompt_row.ids, *output]]), use_cache=False).logits
        output.append(int(logits[0, -1].argmax()))
    return output


def finish(decoder: Decoder, rows: Sequence[Row]) -> None:
    for _ in range(1000):
        if all(row.finished for row in rows):
            return
        decoder.step()
    pytest.fail("the rows do not finish")


def test_rows_in_a_changing_batch_are_answered_as_if_alone(kind: str, model: PreTrainedModel) -> None:
    assert RowCache(model.config).joinable == (kind in JOINABLE)
    rows = some_rows(14)
    batch = decoder(model)
    for start in range(0, 14, 2):  # two more arrive with every other step
        batch.add(rows[start : start + 2])
        batch.step()
        batch.step()
    finish(batch, rows)
    assert [row.output for row in rows] == [plainly(model, row) for row in rows]
    assert batch.rows == 0


def test_a_dropped_row_leaves_the_others_as_they_were(model: PreTrainedModel) -> None:
    rows = some_rows(6, seed=1)
    for item in rows:
        item.limit = 10
    batch = decoder(model, limit=4)
    batch.add(rows)
    for _ in range(4):
        batch.step()
    rows[0].dropped = rows[5].dropped = True
    batch.prune()
    assert batch.rows == len([item for item in rows if not item.finished and not item.dropped])
    remaining = rows[1:5]
    finish(batch, remaining)
    assert [row.output for row in remaining] == [plainly(model, row) for row in remaining]


def test_a_repeated_prefix_is_not_read_again(llama: PreTrainedModel) -> None:
    batch = decoder(llama, prefix_tokens=400)
    shared = list(range(3, 63))
    first, second, other = row([*shared, 70]), row([*shared, 80, 81]), row([90, *shared])
    for item in (first, second, other):
        batch.add([item])
        finish(batch, [item])
    assert (first.cached, second.cached, other.cached) == (0, 60, 0)
    again = row([*first.ids, *first.output, 5, 6])
    batch.add([again])
    finish(batch, [again])
    assert again.cached >= len(first.ids)
    for item in (first, second, other, again):
        assert item.output == plainly(llama, item)


def test_the_same_prompt_again_reads_its_last_token(llama: PreTrainedModel) -> None:
    batch = decoder(llama, prefix_tokens=200)
    twice = [row(range(3, 53)), row(range(3, 53))]
    for item in twice:
        batch.add([item])
        finish(batch, [item])
    assert twice[1].cached == 49
    assert twice[1].output == twice[0].output


class Failing:
    """Makes a model's forward raise where `when` is true for the number of the call and the number of rows."""

    def __init__(self, model: PreTrainedModel, error: BaseException, when: Callable[[int, int], bool]) -> None:
        self.calls = 0
        self.error, self.when = error, when
        self.handle = model.register_forward_pre_hook(self._look, with_kwargs=True)

    def _look(self, _module: object, _args: object, kwargs: dict[str, torch.Tensor]) -> None:
        self.calls += 1
        if self.when(self.calls, len(kwargs["input_ids"])):
            raise self.error


def test_out_of_memory_halves_the_batch(llama: PreTrainedModel, caplog: pytest.LogCaptureFixture) -> None:
    rows = some_rows(8, seed=2)
    batch = decoder(llama, limit=8, prefix_tokens=200)
    failing = Failing(llama, torch.OutOfMemoryError("out of memory"), lambda call, count: count > 2)
    batch.add(rows)
    finish(batch, rows)
    failing.handle.remove()
    assert [row.error for row in rows] == [None] * 8
    assert [row.output for row in rows] == [plainly(llama, row) for row in rows]
    assert "at most 2 answers at a time" in caplog.text


def test_a_row_that_never_fits_fails_alone(llama: PreTrainedModel) -> None:
    rows = [row(range(3, 9)), row([4] * 30), row(range(5, 9))]
    batch = decoder(llama, limit=4)
    failing = Failing(llama, torch.OutOfMemoryError("out of memory"), lambda call, count: count > 1)
    wide = llama.register_forward_pre_hook(_too_wide, with_kwargs=True)
    batch.add(rows)
    finish(batch, rows)
    failing.handle.remove()
    wide.remove()
    assert isinstance(rows[1].error, LLMError)
    assert "could not be answered: too wide" in str(rows[1].error)
    assert [rows[n].output for n in (0, 2)] == [plainly(llama, rows[n]) for n in (0, 2)]


def _too_wide(_module: object, _args: object, kwargs: dict[str, torch.Tensor]) -> None:
    if kwargs["input_ids"].shape[1] >= 30:
        raise torch.OutOfMemoryError("too wide")


def test_a_pass_that_fails_fails_its_rows_and_no_others(llama: PreTrainedModel) -> None:
    rows = some_rows(6, seed=4)
    batch = decoder(llama, limit=2)
    failing = Failing(llama, RuntimeError("a kernel\nbroke"), lambda call, count: call == 3)
    batch.add(rows)
    finish(batch, rows)
    failing.handle.remove()
    failed = [row for row in rows if row.error]
    assert 0 < len(failed) <= 2
    assert {str(row.error) for row in failed} == {"prompt 'test/ask' could not be answered: a kernel broke"}
    assert all(row.output == plainly(llama, row) for row in rows if not row.error)


def test_an_interrupt_loses_no_answer(llama: PreTrainedModel) -> None:
    rows = some_rows(5, seed=5)
    batch = decoder(llama, limit=3)
    failing = Failing(llama, KeyboardInterrupt(), lambda call, count: call in (2, 5, 9))
    batch.add(rows)
    interrupts = 0
    while not all(row.finished for row in rows):
        try:
            batch.step()
        except KeyboardInterrupt:
            interrupts += 1
    failing.handle.remove()
    assert interrupts == 3
    assert [row.output for row in rows] == [plainly(llama, row) for row in rows]


def test_overflowing_logits_fail_only_their_row(llama: PreTrainedModel) -> None:
    rows = [row(range(3, 9)), row(range(5, 9))]
    rows[1].sampler = Sampler(ask(temperature=1.0), rows[1].ids, CPU)
    batch = decoder(llama)

    def spoil(_module: object, _args: object, output: transformers.modeling_outputs.CausalLMOutputWithPast) -> None:
        assert output.logits is not None
        output.logits[-1] = torch.nan

    handle = llama.register_forward_hook(spoil)
    batch.add([rows[1]])
    batch.step()
    handle.remove()
    assert rows[1].finished
    assert "overflowed" in str(rows[1].error)
    batch.add([rows[0]])
    finish(batch, rows)
    assert rows[0].output == plainly(llama, rows[0])


def test_foreground_rows_are_read_before_background_rows(llama: PreTrainedModel) -> None:
    chance = random.Random(5)
    ids = [[chance.randrange(3, VOCABULARY) for _ in range(8)] for _ in range(4)]
    background, foreground = [row(item, background=True) for item in ids[:2]], [row(item) for item in ids[2:]]
    batch = decoder(llama, limit=8)
    batch.add([*background, *foreground])
    batch.step()
    assert all(item.output for item in foreground)
    assert not any(item.output for item in background)
    finish(batch, [*background, *foreground])
    assert [item.output for item in background] == [plainly(llama, item) for item in background]


def test_a_prefix_is_reused_only_with_the_same_salt(llama: PreTrainedModel) -> None:
    ids = list(range(3, 60))
    batch = decoder(llama, prefix_tokens=400)
    for salt, cached in (("a", False), ("a", True), ("b", False), (None, False), (None, True), ("b", True)):
        prompt_row = row(ids, salt=salt)
        batch.add([prompt_row])
        finish(batch, [prompt_row])
        assert bool(prompt_row.cached) == cached, salt
        assert prompt_row.output == plainly(llama, prompt_row)


class Work:
    """Each step serves every waiting number once; a number is done after as many steps as it says."""

    def __init__(self) -> None:
        self.remaining: dict[int, int] = {}
        self.steps = 0
        self.inside = 0
        self.tidied = 0
        self.fail = False

    def step(self) -> None:
        self.inside += 1
        assert self.inside == 1
        time.sleep(0.001)
        self.steps += 1
        if self.fail:
            self.inside = 0
            raise ValueError("a step failed")
        for number in list(self.remaining):
            self.remaining[number] -= 1
        self.inside -= 1

    def tidy(self) -> None:
        self.tidied += 1

    def is_done(self, number: int) -> bool:
        return self.remaining[number] <= 0


def test_all_get_their_answer_and_share_the_steps() -> None:
    work = Work()
    turns = Turns(work.step, work.tidy)

    def work_on(number: int) -> None:
        work.remaining[number] = 10 + number % 5
        turns.work_until(lambda: work.is_done(number))

    with ThreadPoolExecutor(32) as pool:
        list(pool.map(work_on, range(32)))
    assert all(remaining <= 0 for remaining in work.remaining.values())
    assert work.steps < 32 * 10


def test_ready_work_does_no_step() -> None:
    work = Work()
    Turns(work.step, work.tidy).work_until(lambda: True)
    assert work.steps == 0


def test_an_error_reaches_the_working_thread_and_others_continue() -> None:
    work = Work()
    turns = Turns(work.step, work.tidy)
    work.remaining[1] = 3
    work.fail = True
    with pytest.raises(ValueError, match="a step failed"):
        turns.work_until(lambda: work.is_done(1))
    work.fail = False
    turns.work_until(lambda: work.is_done(1))
    assert work.is_done(1)


def test_exclusive_means_no_step_runs() -> None:
    work = Work()
    turns = Turns(work.step, work.tidy)
    work.remaining[1] = 200
    working = threading.Thread(target=turns.work_until, args=(lambda: work.is_done(1),))
    working.start()
    for _ in range(20):
        with turns.exclusive():
            assert work.inside == 0
            before = work.steps
            time.sleep(0.002)
            assert work.steps == before
    working.join(10)
    assert work.is_done(1)


def test_tidying_inside_a_step_does_not_wait_for_itself() -> None:
    tidied: list[str] = []

    def step() -> None:
        turns.tidy()
        tidied.append("step")

    turns = Turns(step, lambda: tidied.append("tidy"))
    turns.work_until(lambda: bool(tidied))
    assert tidied == ["step", "tidy"]
    turns.tidy()
    assert tidied[2:] == ["tidy"]
