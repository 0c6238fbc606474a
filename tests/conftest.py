"""What many test files share: no network, the bundled model, and a tiny random one."""

import os

# Before transformers is imported anywhere: its oracles are built here, nothing is downloaded.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

from pathlib import Path

import pytest

from engine import DEFAULT_MODEL, Engine
from tests.tiny_models import save_model


@pytest.fixture(scope="session")
def bundled_engine() -> Engine:
    """Its generator keeps the state of whoever used it last; begin a stream of your own."""
    return Engine.load(DEFAULT_MODEL, device="cpu")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a random Llama with a byte-level tokenizer and a chat template; read only."""
    path = tmp_path_factory.mktemp("tiny") / "tiny-llama"
    save_model(path)
    return path


@pytest.fixture
def tiny_engine(tiny_model: Path) -> Engine:
    """A fresh engine on the tiny model: float32, CPU, an empty cache."""
    return Engine.load(tiny_model, device="cpu", dtype="float32")
