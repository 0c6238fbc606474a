"""Rounds a model's weights as 8-bit and 4-bit formats would keep them.

Owns the two roundings and the sizes that they come to. Arithmetic stays in float32, so what a loss
then shows is the rounding of weights alone, not of activations.

Both work on groups of 32 weights along a matrix's input. 8 bits: codes from -127 to 127 times a
float16 scale, which is the largest magnitude / 127. 4 bits: codes from 0 to 15 times a float16
scale, plus a float16 minimum. The embedding, which is the output head too, is always kept at 8
bits: it is read token by token and decides the last logits. Norms are not rounded.
"""

import copy

import torch
from torch import Tensor

from training.model import Llama

GROUP = 32
BITS = (8, 4)
EMBEDDING = "model.embed_tokens.weight"
_SCALE_BITS = 16


def quantised(model: Llama, bits: int) -> Llama:
    """A copy of the model with its matrices rounded to `bits` (8 or 4) and back."""
    rounded = copy.deepcopy(model)
    with torch.no_grad():
        for name, parameter in rounded.named_parameters():
            if parameter.ndim == 2:
                parameter.copy_(round_weights(parameter, _bits_of(name, bits)))
    return rounded


def n_bytes(model: Llama, bits: int | None = None) -> int:
    """Size of the weights in bfloat16, or with their matrices in 8 or 4 bits."""
    total = 0
    for name, parameter in model.named_parameters():
        width = 16.0
        if bits is not None and parameter.ndim == 2:
            kept = _bits_of(name, bits)
            width = kept + _SCALE_BITS * (1 if kept == 8 else 2) / GROUP
        total += round(parameter.numel() * width / 8)
    return total


def round_weights(weight: Tensor, bits: int) -> Tensor:
    """Rounds (out, in) weights to the nearest values of the format; GROUP divides `in`."""
    if bits not in BITS:
        raise ValueError(f"bits must be 8 or 4, not {bits}")
    if weight.shape[-1] % GROUP:
        raise ValueError(f"an input of {weight.shape[-1]} weights is not a multiple of {GROUP}")
    groups = weight.reshape(-1, GROUP)
    rounded = _round_8(groups) if bits == 8 else _round_4(groups)
    return rounded.view_as(weight)


def _round_8(groups: Tensor) -> Tensor:
    scale = _float16(groups.abs().amax(-1, keepdim=True) / 127)
    return _codes(groups, scale, -127, 127) * scale


def _round_4(groups: Tensor) -> Tensor:
    low = _float16(groups.amin(-1, keepdim=True))
    scale = _float16((groups.amax(-1, keepdim=True) - low) / 15)
    return _codes(groups - low, scale, 0, 15) * scale + low


def _codes(values: Tensor, scale: Tensor, lowest: int, highest: int) -> Tensor:
    # A group of equal weights has no scale; its codes are 0.
    codes = torch.where(scale > 0, values / scale, 0.0)
    return codes.round().clamp(lowest, highest)


def _float16(values: Tensor) -> Tensor:
    return values.half().float()


def _bits_of(name: str, bits: int) -> int:
    return 8 if name == EMBEDDING else bits
