"""The recipes of configs/eval: each loads as the recipe of the command that its name begins with."""

from pathlib import Path

import pytest
from pydantic import BaseModel

from localmem.experiments.key_compression import KeyCompressionRecipe
from localmem.experiments.operation_evaluation import OperationsRecipe
from localmem.experiments.retrieval_grid import RetrievalGrid
from localmem.experiments.runs import EvaluationRecipe
from localmem.experiments.scenarios import ScenarioRecipe
from localmem.experiments.segmenter_comparison import SegmentationRecipe
from localmem.experiments.system_table import TablePlan
from localmem.files import read_yaml
from localmem.resources import resource

RECIPES: dict[str, type[BaseModel]] = {
    "run": EvaluationRecipe,
    "retrieval": RetrievalGrid,
    "compression": KeyCompressionRecipe,
    "segmentation": SegmentationRecipe,
    "operations": OperationsRecipe,
    "scenarios": ScenarioRecipe,
    "table": TablePlan,
}


@pytest.mark.parametrize("path", sorted(resource("configs/eval").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_shipped_recipe_loads(path: Path) -> None:
    recipe = RECIPES[path.stem.partition("-")[0]].model_validate(read_yaml(path))
    assert recipe.model_fields_set


def test_every_command_with_a_recipe_ships_one() -> None:
    shipped = {path.stem.partition("-")[0] for path in resource("configs/eval").glob("*.yaml")}
    assert shipped == set(RECIPES)


def test_a_grid_measures_each_combination_once() -> None:
    grid = RetrievalGrid(retrievers=("bm25", "hybrid"), weights=(1.0, 2.0), dense_texts=("key", "text"), before=(0, 1))
    configs = grid.configs()
    assert [config.name(configs) for config in configs] == [
        "bm25 before 0",
        "bm25 before 1",
        "hybrid before 0 dense text key weight 1",
        "hybrid before 0 dense text key weight 2",
        "hybrid before 0 dense text text weight 1",
        "hybrid before 0 dense text text weight 2",
        "hybrid before 1 dense text key weight 1",
        "hybrid before 1 dense text key weight 2",
        "hybrid before 1 dense text text weight 1",
        "hybrid before 1 dense text text weight 2",
    ]
