"""Two engines' answers: equal, diverging at a tie, or really different; margins by the model's own forward pass."""

from math import log
from pathlib import Path

import pytest
import torch

from localmem.llm.tokenizer import ChatTokenizer
from localmem.types import Choice, Completion, Message, Prompt
from scripts.check_adapters import ModelMargin, compare_engines, largest_choice_difference, margin_between
from tests.finetune.small import small_chat

PROMPT = Prompt("x", (Message("user", "kite says red"),))
CHOICE = Prompt("x", (Message("user", "kite"),), format=Choice(("red", "blue")))


def test_answers_are_equal_tied_or_different() -> None:
    reference = [Completion(text) for text in ("red", "blue", "green", "moon")]
    other = [Completion(text) for text in ("red", "red", "red", "moon")]
    margins = {"blue": 0.001, "green": 0.5}
    parity = compare_engines("other", [PROMPT] * 4, reference, other, lambda _, mine, __: margins[mine], 0.02)
    assert (parity.equal, parity.ties, parity.widest, parity.share) == (2, 1, 0.5, 0.75)
    assert parity.row()["share equal"] == 0.5


def test_the_margin_of_a_choice_comes_from_its_probabilities() -> None:
    reference = Completion("red", choices={"red": log(0.6), "blue": log(0.4)})
    assert margin_between(CHOICE, reference, Completion("blue"), lambda *_: 9.0) == pytest.approx(log(1.5))


def test_the_largest_difference_between_two_engines() -> None:
    first = Completion("red", choices={"red": log(0.6), "blue": log(0.4)})
    second = Completion("blue", choices={"red": log(0.3), "blue": log(0.7)})
    assert largest_choice_difference([first, first], [first, second]) == pytest.approx(log(2))
    assert largest_choice_difference([Completion("red")], [Completion("red")]) is None


def test_the_margin_of_a_text_is_measured_where_it_diverges(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    chat = ChatTokenizer(small_chat(tmp_path / "base"))
    model = AutoModelForCausalLM.from_pretrained(str(tmp_path / "base")).eval()
    ids = [*chat.encode(PROMPT.messages, {}), *chat.tokenizer("red", add_special_tokens=False)["input_ids"]]
    with torch.inference_mode():
        scores = model(input_ids=torch.tensor([ids])).logits[0, -1].log_softmax(-1)
    kite, end = (chat.tokenizer.convert_tokens_to_ids(word) for word in ("kite", "<end>"))
    margin = ModelMargin(model, chat)
    expected = float(scores[kite] - scores[end])
    assert margin(PROMPT, "red kite", "red") == pytest.approx(expected, abs=1e-5)  # one is the beginning of the other
    assert margin(PROMPT, "red", "red kite") == pytest.approx(-expected, abs=1e-5)
