"""Two engines' answers: the same, parted at a tie, or really different; margins by the model's own forward pass."""

from math import log
from pathlib import Path

import pytest
import torch

from finetune.engine_parity import Weighed, apart, margin_in, sameness
from localmem.llm.tokenizer import ChatTokenizer
from localmem.types import Choice, Completion, Message, Prompt
from tests.finetune.small import small_chat

ASKED = Prompt("x", (Message("user", "kite says red"),))
CHOICE = Prompt("x", (Message("user", "kite"),), format=Choice(("red", "blue")))


def test_answers_are_equal_tied_or_different() -> None:
    told = [Completion(text) for text in ("red", "blue", "green", "moon")]
    other = [Completion(text) for text in ("red", "red", "red", "moon")]
    margins = {"blue": 0.001, "green": 0.5}
    found = sameness("one", [ASKED] * 4, told, other, lambda _, mine, __: margins[mine], 0.02)
    assert (found.equal, found.ties, found.widest, found.share) == (2, 1, 0.5, 0.75)
    assert found.row()["share equal"] == 0.5


def test_a_choice_knows_its_margin() -> None:
    told = Completion("red", choices={"red": log(0.6), "blue": log(0.4)})
    assert margin_in(CHOICE, told, Completion("blue"), lambda *_: 9.0) == pytest.approx(log(1.5))


def test_how_far_two_engines_are_apart() -> None:
    one = Completion("red", choices={"red": log(0.6), "blue": log(0.4)})
    two = Completion("blue", choices={"red": log(0.3), "blue": log(0.7)})
    assert apart([one, one], [one, two]) == pytest.approx(log(2))
    assert apart([Completion("red")], [Completion("red")]) is None


def test_a_text_s_margin_is_where_it_parts(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    chat = ChatTokenizer(small_chat(tmp_path / "base"))
    model = AutoModelForCausalLM.from_pretrained(str(tmp_path / "base")).eval()
    asked = [*chat.encode(ASKED.messages, {}), *chat.tokenizer("red", add_special_tokens=False)["input_ids"]]
    with torch.inference_mode():
        chances = model(input_ids=torch.tensor([asked])).logits[0, -1].log_softmax(-1)
    kite, end = (chat.tokenizer.convert_tokens_to_ids(word) for word in ("kite", "<end>"))
    weigh = Weighed(model, chat)
    wanted = float(chances[kite] - chances[end])
    assert weigh(ASKED, "red kite", "red") == pytest.approx(wanted, abs=1e-5)  # one is the beginning of the other
    assert weigh(ASKED, "red", "red kite") == pytest.approx(-wanted, abs=1e-5)
