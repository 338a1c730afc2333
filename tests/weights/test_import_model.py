"""Importing a folder: what is read off it, copying and linking, and refusals."""

import json
from pathlib import Path

import pytest

from localmem.errors import BadInput, ModelDamaged, ModelMissing
from localmem.weights import Manifest, model_path
from localmem.weights.manifest import Role
from localmem.weights.offline import ImportOptions, import_model
from tests.weights.conftest import TINY, place_model


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A user's folder of weights."""
    return place_model(tmp_path, "My Model")


def test_a_folder_becomes_a_model(directory: Path, source: Path) -> None:
    entry = import_model(source, ImportOptions())
    assert (entry.name, entry.role, entry.context_length) == ("my-model", "llm", 128)
    assert model_path("my-model") == directory / "my-model"
    assert (directory / "my-model/sub/notes.txt").read_bytes() == TINY["sub/notes.txt"]
    assert Manifest.load().entry("my-model") == entry


def test_a_link_keeps_the_weights_where_they_are(directory: Path, source: Path) -> None:
    import_model(source, ImportOptions(name="linked", link=True))
    assert (directory / "linked").resolve() == source
    assert model_path("linked") == directory / "linked"


def test_damage_names_the_command_that_mends_an_import(directory: Path, source: Path) -> None:
    import_model(source, ImportOptions(name="mine"))
    (directory / "mine/config.json").write_bytes(b"{}")
    with pytest.raises(ModelDamaged, match=r"localmem models import DIR --name mine --replace$"):
        model_path("mine")


def test_a_link_to_a_folder_that_went_is_an_absent_model(directory: Path, source: Path) -> None:
    import_model(source, ImportOptions(name="linked", link=True))
    source.rename(source.with_name("moved"))
    with pytest.raises(ModelMissing, match="linked is not on this machine"):
        model_path("linked")


def test_replace_takes_the_place_of_an_import(directory: Path, source: Path) -> None:
    import_model(source, ImportOptions(name="mine"))
    (source / "config.json").write_text(json.dumps({"architectures": ["BertModel"], "hidden_size": 8}))
    with pytest.raises(BadInput, match="--replace"):
        import_model(source, ImportOptions(name="mine"))
    entry = import_model(source, ImportOptions(name="mine", replace=True))
    assert (entry.role, entry.dimension) == ("encoder", 8)
    assert model_path("mine").joinpath("config.json").read_bytes() == (source / "config.json").read_bytes()


def test_a_name_of_the_manifest_is_taken(directory: Path, source: Path) -> None:
    with pytest.raises(BadInput, match="name of a model in the manifest"):
        import_model(source, ImportOptions(name="minilm-l6-v2", replace=True))


@pytest.mark.parametrize(
    ("config", "role"),
    [
        ({"architectures": ["MistralForCausalLM"]}, "llm"),
        ({"architectures": ["T5ForConditionalGeneration"]}, "classifier"),
        ({"architectures": ["XLMRobertaForTokenClassification"]}, "compressor"),
        ({"architectures": ["BertForSequenceClassification"], "id2label": {"0": "LABEL_0"}}, "reranker"),
        ({"architectures": ["BertForSequenceClassification"], "id2label": {"0": "NEUTRAL", "1": "Entailment"}}, "nli"),
        ({"architectures": ["BertForSequenceClassification"], "id2label": {"0": "PASS", "1": "KEEP"}}, "classifier"),
        ({"architectures": ["BertModel"]}, "encoder"),
    ],
)
def test_the_role_is_read_off_the_configuration(
    directory: Path, source: Path, config: dict[str, object], role: Role
) -> None:
    (source / "config.json").write_text(json.dumps(config))
    assert import_model(source, ImportOptions()).role == role


def test_a_sentence_encoders_window_and_pooling_are_read(directory: Path, source: Path) -> None:
    (source / "modules.json").write_text(json.dumps([{"type": "x.Transformer"}, {"type": "x.Normalize"}]))
    (source / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 77}))
    (source / "1_Pooling").mkdir()
    (source / "1_Pooling/config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    entry = import_model(source, ImportOptions())
    assert (entry.role, entry.context_length, entry.dimension) == ("encoder", 77, 16)
    assert (entry.pooling, entry.normalize) == ("cls", True)


def test_a_wish_goes_before_what_the_folder_says(directory: Path, source: Path) -> None:
    wishes = ImportOptions(name="mine", role="classifier", licence="MIT", memory_position="system")
    entry = import_model(source, wishes)
    assert (entry.role, entry.licence, entry.memory_position) == ("classifier", "MIT", "system")


@pytest.mark.parametrize(
    ("missing", "message"), [("config.json", "give a model's folder"), ("model.safetensors", "has no weights")]
)
def test_a_folder_that_is_no_models_is_refused(directory: Path, source: Path, missing: str, message: str) -> None:
    (source / missing).unlink()
    with pytest.raises(BadInput, match=message):
        import_model(source, ImportOptions())


def test_a_folder_that_does_not_say_its_role_asks_for_one(directory: Path, source: Path) -> None:
    (source / "config.json").write_text("{}")
    with pytest.raises(BadInput, match="give --role"):
        import_model(source, ImportOptions())


def test_a_name_that_cannot_be_one_is_refused(directory: Path, source: Path) -> None:
    with pytest.raises(BadInput, match="Up/Down"):
        import_model(source, ImportOptions(name="Up/Down"))
    assert not (directory / "Up").exists()


def test_an_absent_folder_is_refused(directory: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is not a folder"):
        import_model(tmp_path / "nowhere", ImportOptions())
