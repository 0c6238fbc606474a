"""Random experts in blocks of MXFP4, as gpt-oss stores them, in a model of transformers."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

_EXPERTS = ("mlp.experts.gate_up_proj", "mlp.experts.down_proj")
# With codes of all kinds the weights get a standard deviation of about 0.13.
_SCALES = (121, 124)


def save_in_blocks(path: Path, model: Any) -> None:
    """Gives the model other experts, random blocks as transformers decodes them, and saves it with
    these blocks.
    """
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    generator = torch.Generator().manual_seed(0)
    stored = dict(model.state_dict())
    for name in [each for each in stored if each.endswith(_EXPERTS)]:
        n, n_in, n_out = stored.pop(name).shape
        shape = (n, n_out, n_in // 32)
        codes = torch.randint(0, 256, (*shape, 16), generator=generator, dtype=torch.uint8)
        scales = torch.randint(*_SCALES, shape, generator=generator, dtype=torch.uint8)
        stored |= {f"{name}_blocks": codes, f"{name}_scales": scales}
        values = convert_moe_packed_tensors(codes, scales, dtype=torch.float32)
        with torch.no_grad():
            model.get_parameter(name).copy_(values)
    model.config.save_pretrained(path)
    file = path / "config.json"
    config = json.loads(file.read_text("utf-8"))
    config |= {
        "architectures": [type(model).__name__],
        "quantization_config": {"quant_method": "mxfp4"},
    }
    file.write_text(json.dumps(config), "utf-8")
    save_file(stored, path / "model.safetensors", metadata={"format": "pt"})
