"""Trained summarisers: a small T5 and BART answer as transformers' own generation does, in each prompt's format."""

import json
from pathlib import Path

import pytest

from localmem.config import system_options
from localmem.errors import BadInput
from localmem.factory import Parts
from localmem.llm.scripted import ScriptedLLM
from localmem.llm.structured_output import answer_format, array, string
from localmem.prompts import render
from localmem.summaries.trained_summaries import TrainedSummaries
from localmem.systems.all_memories import AllMemories, AllMemoriesOptions, ReBot, ReBotOptions
from localmem.types import Prompt
from tests.fakes import WordRetriever, session

TEXTS = (
    "Ana: We sailed to Malta.\nBo: And back?",
    "Ana: My boat is blue, and it is the third that I have had since May.",
)


@pytest.fixture(scope="module", params=["t5", "bart"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, starter_encoder_dir: Path) -> Path:
    """A model of random weights with the words of the starter's encoder."""
    import torch
    from transformers import (
        AutoTokenizer,
        BartConfig,
        BartForConditionalGeneration,
        T5Config,
        T5ForConditionalGeneration,
    )

    place: Path = tmp_path_factory.mktemp(request.param)
    tokenizer = AutoTokenizer.from_pretrained(str(starter_encoder_dir), local_files_only=True)
    tokenizer.save_pretrained(str(place))
    ends = {"pad_token_id": 0, "eos_token_id": 102, "bos_token_id": 101, "decoder_start_token_id": 0}
    with torch.random.fork_rng():
        torch.manual_seed(3)
        if request.param == "t5":
            shape = {"d_model": 32, "d_ff": 64, "d_kv": 8, "num_layers": 1, "num_heads": 2}
            T5ForConditionalGeneration(T5Config(vocab_size=len(tokenizer), **shape, **ends)).save_pretrained(str(place))
        else:
            sides = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in _SIDE.items()}
            config = BartConfig(vocab_size=len(tokenizer), d_model=32, **sides, **ends, forced_eos_token_id=102)
            BartForConditionalGeneration(config).save_pretrained(str(place))
    return place


_SIDE = {"layers": 1, "attention_heads": 2, "ffn_dim": 64}


def _reference(folder: Path, text: str, longest: int) -> str:
    """One text alone, by the library."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    model = AutoModelForSeq2SeqLM.from_pretrained(str(folder), local_files_only=True)
    row = model.generate(**tokenizer([text], return_tensors="pt", return_token_type_ids=False), max_new_tokens=longest)[
        0
    ]
    return str(tokenizer.decode(row, skip_special_tokens=True)).strip()


def _never(_: Prompt) -> str:
    pytest.fail("the backbone was asked")


def test_each_dialogue_is_summarised_by_the_model_alone(folder: Path) -> None:
    llm = TrainedSummaries(ScriptedLLM(_never), lambda: folder)
    prompts = [render("rebot/summarize", dialogue=text, user="Ana", assistant="Bo") for text in TEXTS]
    answers = [answer.text for answer in llm.generate(prompts)]
    assert answers == [_reference(folder, text, prompts[0].max_tokens) for text in TEXTS]
    assert answers[0]


def test_a_dialogue_longer_than_the_window_is_summarised_in_parts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localmem.summaries.trained_summaries._WINDOW", 12)
    prompt = render("rebot/summarize", dialogue=TEXTS[0], user="Ana", assistant="Bo")
    (answer,) = TrainedSummaries(ScriptedLLM(_never), lambda: folder).generate([prompt])
    assert answer.text == " ".join(_reference(folder, line, prompt.max_tokens) for line in TEXTS[0].split("\n"))


def test_a_sentence_of_an_utterance_comes_as_a_list(folder: Path) -> None:
    form = answer_format(memories=array(string(160), 1))
    prompt = render("all_memories/persona", form=form, before="Bo: Hi!", said="Ana: I sail.", speaker="Ana")
    (answer,) = TrainedSummaries(ScriptedLLM(_never), lambda: folder).generate([prompt])
    text = _reference(folder, "Bo: Hi!\nAna: I sail.", prompt.max_tokens)
    assert json.loads(answer.text) == {"memories": [text] if text else []}


def test_a_folder_without_such_a_model_is_refused(starter_encoder_dir: Path) -> None:
    llm = TrainedSummaries(ScriptedLLM(_never), lambda: starter_encoder_dir)
    with pytest.raises(BadInput, match="holds no T5 or BART"):
        llm.generate([render("rebot/summarize", dialogue="Ana: Hi!", user="Ana", assistant="Bo")])


def test_the_systems_of_the_papers_are_written_by_the_summariser_that_is_named() -> None:
    def load(name: str, _: object) -> ScriptedLLM:
        assert name == "here"
        return ScriptedLLM(
            lambda prompt: '{"memories": ["The user sails."]}' if "said" in prompt.inputs else "The user sails a boat."
        )

    parts = Parts(ScriptedLLM(_never), WordRetriever, load_summarizer=load)
    rebot = ReBot(parts, ReBotOptions(summarizer="here"))
    values = system_options("all_memories", {"each": "utterance", "summarizer": "here"})
    summem_msc = AllMemories(parts, AllMemoriesOptions.model_validate(values))
    texts = []
    for system in (rebot, summem_msc):
        system.apply(system.end_session(session("The user sails a boat.")))
        texts.append([unit.text for unit in system.bank.live()])
    assert texts == [["The user sails a boat."], ["The user sails."]]
