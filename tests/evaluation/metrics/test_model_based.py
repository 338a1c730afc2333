"""Likelihoods and vectors of texts against the model called directly, one text at a time, and a worked example."""

import math
from pathlib import Path

import bert_score
import numpy as np
import pytest
import torch
from mauve.utils import featurize_tokens_from_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from localmem.errors import BadInput, ModelMissing
from localmem.evaluation.metrics.model_based import BertScore, Likelihood, Scorer, mauve, perplexity
from localmem.types import Message

ASKED = [
    ((Message("system", "You know Ana."), Message("user", "Where does Ana live?")), "In Porto, near the sea."),
    ((Message("user", "Hi!"),), "Hello."),
    ((Message("user", "What is the colour of grass in the spring?"),), "Green"),
]


@pytest.fixture(scope="module")
def scorer(starter_llm_dir: Path) -> Scorer:
    return Scorer(starter_llm_dir, device="cpu", batch=2)


def test_a_likelihood_is_the_model_s_own_loss(scorer: Scorer, starter_llm_dir: Path) -> None:
    likelihoods = scorer.likelihoods(ASKED)
    tokenizer = AutoTokenizer.from_pretrained(str(starter_llm_dir), local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(str(starter_llm_dir), dtype=torch.float32, local_files_only=True)
    for (messages, answer), ours in zip(ASKED, likelihoods, strict=True):
        messages_json = [{"role": message.role, "content": message.content} for message in messages]
        text = tokenizer.apply_chat_template(messages_json, add_generation_prompt=True, tokenize=False)
        prompt = tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids
        end = tokenizer(f"{answer}<|im_end|>", add_special_tokens=False, return_tensors="pt").input_ids
        labels = torch.cat([torch.full_like(prompt, -100), end], dim=1)
        with torch.inference_mode():
            loss = float(model(input_ids=torch.cat([prompt, end], dim=1), labels=labels).loss)
        assert ours.tokens == end.shape[1]
        assert ours.perplexity == pytest.approx(math.exp(loss), rel=1e-4)
    assert [likelihood.cut for likelihood in likelihoods] == [0, 0, 0]


def test_an_adapter_is_what_peft_makes_of_it(scorer: Scorer, starter_llm_dir: Path, random_adapter: Path) -> None:
    from peft import PeftModel

    adapted = Scorer(starter_llm_dir, adapter=random_adapter, device="cpu")
    plain = Scorer(starter_llm_dir, device="cpu")
    plain._model = PeftModel.from_pretrained(plain._model, str(random_adapter)).eval()
    models = (adapted, plain, scorer)
    ours, theirs, bare = ([likelihood.log_probability for likelihood in model.likelihoods(ASKED)] for model in models)
    assert ours == pytest.approx(theirs, rel=1e-4)
    assert ours != pytest.approx(bare, rel=0.05)


def test_a_folder_that_is_no_adapter_is_refused(starter_llm_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no adapter in"):
        Scorer(starter_llm_dir, adapter=tmp_path, device="cpu")


def test_what_the_model_would_say_is_likelier_than_nonsense(scorer: Scorer) -> None:
    messages = (Message("user", "What is the capital of France?"),)
    right, wrong = scorer.likelihoods([(messages, "The capital of France is Paris."), (messages, "Purple of the.")])
    assert right.perplexity < wrong.perplexity / 10


def test_a_model_that_knows_nothing_is_as_perplexed_as_its_vocabulary_is_large(starter_llm_dir: Path) -> None:
    blank = Scorer(starter_llm_dir, device="cpu")
    blank._model.model.norm.weight.data.zero_()  # every state, and so every logit, is 0
    likelihoods = blank.likelihoods(ASKED[:2])
    assert [likelihood.perplexity for likelihood in likelihoods] == pytest.approx([49152] * 2, rel=1e-4)
    assert perplexity(likelihoods) == pytest.approx(49152, rel=1e-4)


def test_all_tokens_count_alike_in_the_perplexity_of_a_set() -> None:
    # three tokens of probability 1/2 and one of 1/8: exp((3 ln 2 + ln 8) / 4)
    likelihoods = [Likelihood(-3 * math.log(2), 3, 0), Likelihood(-math.log(8), 1, 0)]
    assert [likelihood.perplexity for likelihood in likelihoods] == pytest.approx([2, 8])
    assert perplexity(likelihoods) == pytest.approx(2**1.5)
    with pytest.raises(BadInput, match="at least one answer"):
        perplexity([])


def test_a_prompt_that_does_not_fit_loses_its_oldest_tokens(scorer: Scorer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scorer, "_length", 30)
    (likelihood,) = scorer.likelihoods(ASKED[:1])
    assert likelihood.cut > 0
    with pytest.raises(BadInput, match="give 1 to 29"):
        scorer.likelihoods([(ASKED[0][0], "word " * 40)])
    with pytest.raises(BadInput, match="the answer '' has"):
        scorer.likelihoods([(ASKED[0][0], "")])


TEXTS = [f"Number {n} is {'even' if n % 2 == 0 else 'odd'}{', as I said before' * (n % 3)}." for n in range(24)]
OTHERS = [f"{word} went home {n} times." for n, word in enumerate(["Ana", "Ben", "The dog", "My aunt"] * 6)]


def test_features_and_mauve_are_those_of_mauve_text(scorer: Scorer) -> None:
    ours, theirs = scorer.features(TEXTS), scorer.features(OTHERS)
    assert ours.dtype == np.float32
    ids = [torch.tensor([scorer._ids(text)]) for text in TEXTS]
    with torch.inference_mode():
        alone = featurize_tokens_from_model(scorer._model, ids, batch_size=1).numpy()
    np.testing.assert_allclose(ours, alone, atol=1e-3)
    from mauve import compute_mauve

    assert mauve(ours, theirs) == compute_mauve(p_features=ours, q_features=theirs, verbose=False).mauve
    assert mauve(ours, ours) == pytest.approx(1.0)
    assert mauve(ours, theirs) < 0.5
    with pytest.raises(BadInput, match="at least 20 of both"):
        mauve(ours[:19], theirs)
    with pytest.raises(BadInput, match="text 2 is empty"):
        scorer.features(["a", ""])


REPLIES = ["Ana lives in Porto.", "", "The dog is tired of running."]
GOLDS = ["Ana moved to Porto.", "Something.", "The dog is tired of running."]


def test_bert_score_is_the_library_s(starter_encoder_dir: Path) -> None:
    ours = BertScore(starter_encoder_dir, device="cpu")
    assert ours.layers == 6
    scores = ours.score(REPLIES, GOLDS)
    assert scores[2] == pytest.approx((1.0, 1.0, 1.0), abs=1e-5)  # each word is nearest to itself
    assert scores[1] == (0.0, 0.0, 0.0)
    theirs = bert_score.score(
        REPLIES[::2], GOLDS[::2], model_type=str(starter_encoder_dir), num_layers=6, device="cpu", verbose=False
    )
    for name, column in zip(("precision", "recall", "f1"), theirs, strict=True):
        assert [getattr(score, name) for score in scores[::2]] == pytest.approx(column.tolist(), abs=1e-6)
    assert scores[0].f1 < 0.99


def test_which_layer_is_taken_matters_and_must_be_there(starter_encoder_dir: Path) -> None:
    third = BertScore(starter_encoder_dir, layers=3, device="cpu").score(REPLIES[:1], GOLDS[:1])
    last = BertScore(starter_encoder_dir, device="cpu").score(REPLIES[:1], GOLDS[:1])
    assert third != last
    with pytest.raises(BadInput, match="no layer 7; give 1 to 6"):
        BertScore(starter_encoder_dir, layers=7, device="cpu")


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match="there is no encoder in"):
        BertScore(tmp_path, device="cpu")
