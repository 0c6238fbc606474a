"""Safetensors -> the layout that the decoder runs on.

Owns the Hugging Face tensor names and the fusion of q, k, v and of gate and up into one matrix
each. Knows no op. All names, shapes and dtypes are verified before anything is allocated.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from .checkpoint import Checkpoint, StoredTensor, read_checkpoint
from .config import ModelConfig
from .errors import ModelLoadError

_ALLOWED_DTYPES = ("F32", "F16", "BF16")
# Tables that old Llama checkpoints stored; they follow from config.json.
_IGNORED = re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")
_EMBEDDING = "model.embed_tokens.weight"
_FINAL_NORM = "model.norm.weight"
_HEAD = "lm_head.weight"


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer. Matrices are (out, in), as `ops.linear` takes them."""

    attention_norm: torch.Tensor  # (dim,)
    wqkv: torch.Tensor  # ((n_heads + 2 * n_kv_heads) * head_dim, dim): q, then k, then v
    bqkv: torch.Tensor | None
    q_norm: torch.Tensor | None  # (head_dim,)
    k_norm: torch.Tensor | None  # (head_dim,)
    wo: torch.Tensor  # (dim, n_heads * head_dim)
    bo: torch.Tensor | None
    mlp_norm: torch.Tensor  # (dim,)
    w_gate_up: torch.Tensor  # (2 * hidden_dim, dim): gate, then up
    b_gate_up: torch.Tensor | None
    w_down: torch.Tensor  # (dim, hidden_dim)
    b_down: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class Weights:
    """A whole model; `head` is `embedding` itself when they are tied."""

    embedding: torch.Tensor  # (vocab_size, dim)
    layers: tuple[LayerWeights, ...]
    norm: torch.Tensor  # (dim,)
    head: torch.Tensor  # (vocab_size, dim)


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor that a checkpoint of `config` must hold, by its Hugging Face name."""
    dim, hidden = config.dim, config.hidden_dim
    q_dim, kv_dim = config.n_heads * config.head_dim, config.n_kv_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {_EMBEDDING: (config.vocab_size, dim), _FINAL_NORM: (dim,)}
    if not config.tie_embeddings:
        shapes[_HEAD] = (config.vocab_size, dim)
    for index, layer in enumerate(config.layers):
        matrices = {
            "self_attn.q_proj": (q_dim, dim, layer.qkv_bias),
            "self_attn.k_proj": (kv_dim, dim, layer.qkv_bias),
            "self_attn.v_proj": (kv_dim, dim, layer.qkv_bias),
            "self_attn.o_proj": (dim, q_dim, layer.o_bias),
            "mlp.gate_proj": (hidden, dim, layer.mlp_bias),
            "mlp.up_proj": (hidden, dim, layer.mlp_bias),
            "mlp.down_proj": (dim, hidden, layer.mlp_bias),
        }
        prefix = f"model.layers.{index}."
        for name, (n_out, n_in, has_bias) in matrices.items():
            shapes[f"{prefix}{name}.weight"] = (n_out, n_in)
            if has_bias:
                shapes[f"{prefix}{name}.bias"] = (n_out,)
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{prefix}{name}.weight"] = (dim,)
        if layer.qk_norm:
            for name in ("self_attn.q_norm", "self_attn.k_norm"):
                shapes[f"{prefix}{name}.weight"] = (config.head_dim,)
    return shapes


def check_tensors(checkpoint: Checkpoint, config: ModelConfig) -> dict[str, StoredTensor]:
    """The tensors that the model needs, after comparing names, shapes and dtypes with `config`.

    Raises ModelLoadError naming file and tensor. A stored head of a tied model is ignored.
    """
    expected, tensors = expected_shapes(config), checkpoint.tensors
    for name, shape in expected.items():
        if name not in tensors:
            raise ModelLoadError(
                f"{checkpoint.file}: {name}: missing; config.json asks for shape {list(shape)}"
            )
    tied_head = {_HEAD: (config.vocab_size, config.dim)} if config.tie_embeddings else {}
    for name, tensor in tensors.items():
        if _IGNORED.fullmatch(name):
            continue
        wanted = expected.get(name) or tied_head.get(name)
        if wanted is None:
            raise ModelLoadError(
                f"{tensor.file}: {name}: a {config.architecture} with this config.json has no "
                f"such tensor"
            )
        if tensor.shape != wanted:
            raise ModelLoadError(
                f"{tensor.file}: {name}: has shape {list(tensor.shape)}, "
                f"config.json asks for {list(wanted)}"
            )
        if tensor.dtype not in _ALLOWED_DTYPES:
            allowed = ", ".join(_ALLOWED_DTYPES)
            raise ModelLoadError(
                f"{tensor.file}: {name}: dtype {tensor.dtype} is not supported; allowed: {allowed}"
            )
    return {name: tensors[name] for name in expected}


def load_weights(
    path: Path,
    config: ModelConfig,
    *,
    device: torch.device,
    dtype: torch.dtype,
    on_progress: Callable[[int, int], None] | None,
) -> Weights:
    """Reads the checkpoint in `path` into `dtype` on `device`.

    `on_progress` gets (bytes read, bytes in all) after each tensor. Raises ModelLoadError.
    """
    tensors = check_tensors(read_checkpoint(path), config)
    with ExitStack() as files, torch.no_grad():
        reader = _Reader(tensors, files, device=device, dtype=dtype, on_progress=on_progress)
        embedding = reader.read(_EMBEDDING)
        return Weights(
            embedding=embedding,
            layers=tuple(_read_layer(reader, config, i) for i in range(config.n_layers)),
            norm=reader.read(_FINAL_NORM),
            head=embedding if config.tie_embeddings else reader.read(_HEAD),
        )


def _read_layer(reader: "_Reader", config: ModelConfig, index: int) -> LayerWeights:
    layer, prefix = config.layers[index], f"model.layers.{index}."

    def read(*names: str, kind: str = "weight") -> torch.Tensor:
        return reader.read(*(f"{prefix}{name}.{kind}" for name in names))

    qkv = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    gate_up = ("mlp.gate_proj", "mlp.up_proj")
    return LayerWeights(
        attention_norm=read("input_layernorm"),
        wqkv=read(*qkv),
        bqkv=read(*qkv, kind="bias") if layer.qkv_bias else None,
        q_norm=read("self_attn.q_norm") if layer.qk_norm else None,
        k_norm=read("self_attn.k_norm") if layer.qk_norm else None,
        wo=read("self_attn.o_proj"),
        bo=read("self_attn.o_proj", kind="bias") if layer.o_bias else None,
        mlp_norm=read("post_attention_layernorm"),
        w_gate_up=read(*gate_up),
        b_gate_up=read(*gate_up, kind="bias") if layer.mlp_bias else None,
        w_down=read("mlp.down_proj"),
        b_down=read("mlp.down_proj", kind="bias") if layer.mlp_bias else None,
    )


class _Reader:
    """Copies stored tensors, several of them stacked by rows, into one new tensor."""

    def __init__(
        self,
        tensors: Mapping[str, StoredTensor],
        files: ExitStack,
        *,
        device: torch.device,
        dtype: torch.dtype,
        on_progress: Callable[[int, int], None] | None,
    ) -> None:
        self._tensors = tensors
        self._device = device
        self._dtype = dtype
        self._on_progress = on_progress
        self._done = 0
        self._total = sum(tensor.n_bytes for tensor in tensors.values())
        self._open = {file: files.enter_context(_opened(file)) for file in _files(tensors)}

    def read(self, *names: str) -> torch.Tensor:
        """The named tensors, which differ at most in their first dimension, one after the other."""
        parts = [self._tensors[name] for name in names]
        n_rows = sum(part.shape[0] for part in parts)
        fused = torch.empty((n_rows, *parts[0].shape[1:]), device=self._device, dtype=self._dtype)
        row = 0
        for part in parts:
            try:
                stored = self._open[part.file].get_tensor(part.name)
            except (SafetensorError, OSError) as error:
                raise ModelLoadError(f"{part.file}: {part.name}: {error}") from error
            fused[row : row + part.shape[0]].copy_(stored)
            row += part.shape[0]
            self._advance(part.n_bytes)
        return fused

    def _advance(self, n_bytes: int) -> None:
        self._done += n_bytes
        if self._on_progress is not None:
            self._on_progress(self._done, self._total)


def _files(tensors: Mapping[str, StoredTensor]) -> Iterator[Path]:
    return iter(dict.fromkeys(tensor.file for tensor in tensors.values()))


def _opened(file: Path) -> safe_open:
    """The file mapped into memory; pages are read when a tensor is copied."""
    try:
        return safe_open(file, framework="pt")
    except (SafetensorError, OSError) as error:
        raise ModelLoadError(f"{file}: {error}") from error
