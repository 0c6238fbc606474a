"""What `soliton inspect` says of a model with recurrent layers."""

from pathlib import Path

from engine.description import describe
from server.commands.model_summary import summary
from tests.support.family_models import FAMILY_MODELS
from tests.support.tiny_models import save_model


def test_states_are_counted(tmp_path: Path) -> None:
    save_model(tmp_path, FAMILY_MODELS["qwen3_5"])
    found = describe(tmp_path)
    # 4 heads of 16 by 32 numbers, and 3 rows of the convolution over 2 x 2 x 16 + 4 x 32 channels.
    assert found.snapshot_bytes == 4 * (4 * 16 * 32 + 3 * 192)
    # 4 such states, and 32 rows with 2 numbers more per head.
    assert found.state_bytes == 4 * found.snapshot_bytes + 4 * 32 * (192 + 2 * 4)
    told = dict(summary(found, 100, "auto"))
    assert told["states"] == (
        "67.6 kB of recurrent layers, whatever the context; a copy in the prefix cache takes "
        "10.5 kB"
    )
    assert "67.6 kB for states" in told["float32 needs"]
    whole = found.memory_bytes(100, "float32")
    assert whole == sum(
        (found.weight_bytes("float32"), found.kv_bytes(100, "float32"), found.state_bytes)
    )


def test_other_models_have_none(tmp_path: Path) -> None:
    save_model(tmp_path, "llama")
    told = dict(summary(describe(tmp_path), 100, "auto"))
    assert "states" not in told
    assert "states" not in told["float32 needs"]
