"""The shipped recipes: every field with its default and its sentence, so that a copy is a good start."""

from pathlib import Path

import pytest

from finetune.trainers.compressor import CompressorRecipe
from finetune.trainers.lora import LoraRecipe
from finetune.trainers.operation_classifier import OperationRecipe
from finetune.trainers.reranker import RerankerRecipe
from finetune.trainers.retriever import RetrieverRecipe
from finetune.trainers.second_stage import SecondStageRecipe
from finetune.trainers.segmenter import SegmenterRecipe, TextTilingRecipe
from finetune.trainers.statements import StatementRecipe
from finetune.trainers.training import Recipe
from localmem.files import read_yaml
from localmem.resources import resource

RECIPES: dict[str, type[Recipe]] = {
    "compressor": CompressorRecipe,
    "lora": LoraRecipe,
    "operations": OperationRecipe,
    "reranker": RerankerRecipe,
    "retriever": RetrieverRecipe,
    "second-stage": SecondStageRecipe,
    "segmenter": SegmenterRecipe,
    "statements": StatementRecipe,
    "texttiling": TextTilingRecipe,
}
VARIANTS: dict[str, type[Recipe]] = {
    "lora-carecall": LoraRecipe,
    "retriever-carecall": RetrieverRecipe,
}  # other values of the same fields


def _file(name: str) -> Path:
    return resource("configs/finetune") / f"{name}.yaml"


def test_every_trainer_has_a_recipe() -> None:
    assert {path.stem for path in resource("configs/finetune").glob("*.yaml")} == {*RECIPES, *VARIANTS}


@pytest.mark.parametrize("name", RECIPES)
def test_a_shipped_recipe_states_the_defaults(name: str) -> None:
    values = read_yaml(_file(name))
    assert list(values) == list(RECIPES[name].model_fields)
    assert RECIPES[name].model_validate(values) == RECIPES[name]()


def test_the_paper_s_recipe_has_its_rank_and_alpha() -> None:
    recipe = LoraRecipe.model_validate(read_yaml(_file("lora-carecall")))
    assert (recipe.rank, recipe.alpha, recipe.weight_decay, recipe.batch_size) == (4, 32, 0.1, 8)
    retriever = RetrieverRecipe.model_validate(read_yaml(_file("retriever-carecall")))
    assert (retriever.encoders, retriever.pooling, retriever.hard, retriever.margin) == ("two", "cls", 0, 0.2)
    assert (retriever.epochs, retriever.learning_rate) == (20, 3e-5)


@pytest.mark.parametrize("name", RECIPES)
def test_every_field_has_a_sentence_that_the_file_repeats(name: str) -> None:
    comments = " ".join(_file(name).read_text(encoding="utf-8").replace("#", "").split())
    for field, about in RECIPES[name].model_fields.items():
        assert about.description, field
        assert " ".join(about.description.split()) in comments
