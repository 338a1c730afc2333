"""What all tests share: no network but loopback, and the two starter models.

pytest-socket (see addopts in pyproject.toml) guards connections of this process; tests/offline guards name look-ups and
every Python that a test starts.
"""

import importlib.util
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests import postgres_server
from tests.postgres_server import PostgresServer

settings.register_profile("untimed", deadline=None)  # a slow machine is no defect
settings.load_profile("untimed")
_OFFLINE = Path(__file__).parent / "offline"


def pytest_configure(config: pytest.Config) -> None:
    """Shuts the network off for this process and its children before any test is collected."""
    _load_guard()
    # A hub library that is told to stay offline would hide what one does that is not.
    for variable in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE", "LOCALMEM_CONFIG"):
        os.environ.pop(variable, None)
    os.environ["TZ"] = "UTC"  # turns are dated by this machine's clock where no zone is set
    time.tzset()
    os.environ["XDG_CONFIG_HOME"] = str(_OFFLINE)  # no settings.yaml there: a developer's own must not change a test
    os.environ["PYTHONPATH"] = os.pathsep.join([str(_OFFLINE), *filter(None, [os.environ.get("PYTHONPATH")])])


def _load_guard() -> None:
    spec = importlib.util.spec_from_file_location("offline_guard", _OFFLINE / "sitecustomize.py")
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server that all tests of this process share."""
    if reason := postgres_server.missing():
        pytest.skip(reason)
    with postgres_server.run_server() as server:
        yield server


@pytest.fixture(scope="session")
def starter_llm_dir() -> Path:
    """The folder of SmolLM2-135M-Instruct."""
    return _starter("smollm2-135m-instruct")


@pytest.fixture(scope="session")
def random_adapter(starter_llm_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A LoRA adapter of the starter with random weights, large enough to be heard."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(str(starter_llm_dir), dtype=torch.float32)
    config = LoraConfig(r=8, lora_alpha=64, target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM")
    adapted = get_peft_model(base, config)
    torch.manual_seed(0)
    for name, weights in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weights, std=0.06)
    folder = tmp_path_factory.mktemp("adapter")
    adapted.save_pretrained(str(folder))
    return folder


@pytest.fixture(scope="session")
def starter_encoder_dir() -> Path:
    """The folder of all-MiniLM-L6-v2."""
    return _starter("minilm-l6-v2")


def _starter(name: str) -> Path:
    from localmem.errors import ModelDamaged, ModelMissing
    from localmem.weights import model_path

    try:
        return model_path(name)
    except (ModelMissing, ModelDamaged) as error:
        pytest.fail(str(error), pytrace=False)
