"""What `soliton inspect` prints: architecture, sizes, formats and memory of a model.

Knows the engine's public surface; knows no HTTP.
"""

from collections.abc import Iterable, Iterator

from engine import ModelConfig, ModelDescription

_FORMATS = ("float32", "bfloat16", "8bit", "6bit", "5bit", "4bit")


def summary(
    description: ModelDescription, n_tokens: int, kv_cache: str
) -> Iterator[tuple[str, str]]:
    """Labels and texts. Raises EngineError for a format that does not exist."""
    config = description.config
    tied = "head tied to the embedding" if config.tie_embeddings else "separate head"
    template = "yes" if description.has_chat_template else "no"
    rope = "; ".join(each.describe() for each in config.ropes) or "learned positions"
    stored = ", ".join(f"{name} {_size(n)}" for name, n in description.stored_bytes.items())
    yield "model", description.model_id
    yield "file" if description.is_gguf else "directory", str(description.path)
    yield "architecture", config.architecture
    yield "parameters", f"{description.n_params:,}"
    attentions = [layer.attention for layer in config.layers if layer.attention.n_heads]
    n_heads, n_kv_heads = (
        _each(each.n_heads for each in attentions),
        _each(each.n_kv_heads for each in attentions),
    )
    head_dim = _each(each.head_dim for each in attentions)
    n_layers = config.n_stored_layers
    yield "layers", f"{n_layers}, {config.dim} wide, feed-forward {_feed_forward(config)}"
    yield "heads", f"{n_heads}, {n_kv_heads} key/value, {head_dim} wide"
    yield "attention", _attention(config)
    yield "vocabulary", f"{config.vocab_size:,}, {description.n_tokens:,} in use; {tied}"
    if embeddings := config.ends.layer_embeddings:
        size = _size(description.table_bytes)
        yield (
            "layer embeddings",
            f"{embeddings.dim} wide in each layer, {size}; they stay in the file",
        )
    yield "context", f"up to {config.max_seq_len:,} tokens, {rope}"
    yield "tokenizer", description.tokenizer
    yield "chat template", template
    kind = "GGUF" if description.is_gguf else "safetensors"
    yield "stored as", f"{stored} in {description.n_files} {kind} file(s)"
    if description.is_gguf:
        yield from _groups(description)
    by_default = description.default_format
    yield "loaded as", f"{by_default} on the CPU by default"
    yield "read per token", f"{_size(description.step_bytes(by_default))} of weights"
    if states := description.state_bytes:
        yield (
            "states",
            f"{_size(states)} of recurrent layers, whatever the context; a copy in the prefix "
            f"cache takes {_size(description.snapshot_bytes)}",
        )
    of_states = f" + {_size(states)} for states" if states else ""
    own = (by_default,) if by_default not in _FORMATS else ()
    for format_ in (*own, *_FORMATS):
        weights = description.weight_bytes(format_)
        kv = description.kv_bytes(n_tokens, format_, kv_cache)
        yield (
            f"{format_} needs",
            f"{_size(weights)} for weights + {_size(kv)} for {n_tokens:,} tokens{of_states} "
            f"= {_size(weights + kv + states)}",
        )


def _groups(description: ModelDescription) -> Iterator[tuple[str, str]]:
    """What is stored for each part, and what will be slower than the file's size suggests."""
    for group in description.groups:
        n_bytes = _size(group.n_bytes)
        yield "", f"{group.part}: {group.n_tensors} tensor(s) of {group.dtype}, {n_bytes}"
    for group in description.groups:
        if group.is_wider:
            yield (
                "slow",
                f"{group.part}, {group.dtype}: exact, but with {group.loaded_bits:.1f} bits a "
                f"weight in memory for {group.stored_bits:.1f} in the file; the CPU multiplies "
                f"with no {group.dtype} as it is",
            )


def _attention(config: ModelConfig) -> str:
    of_layers = [layer.attention.window for layer in config.layers]
    windows = sorted(set(of_layers) - {0})
    n_recurrent = len(config.state_shapes)
    n_layers = config.n_stored_layers
    recurrent = f"; {n_recurrent} of {n_layers} layers recurrent" if n_recurrent else ""
    if not windows:
        return f"full{recurrent}"
    n = sum(1 for window in of_layers if window)
    sizes = " or ".join(f"{window:,}" for window in windows)
    return f"sliding window of {sizes} tokens in {n} of {n_layers} layers{recurrent}"


def _feed_forward(config: ModelConfig) -> str:
    """The widths of dense layers, then the experts of the others and what their tokens share."""
    mlps = [layer.mlp for layer in config.layers if layer.mlp.exists]
    found = []
    if dense := [mlp.hidden_dim for mlp in mlps if mlp.experts is None]:
        found.append(_each(dense))
    for experts, shared in dict.fromkeys((mlp.experts, mlp.hidden_dim) for mlp in mlps):
        if experts is not None:
            text = f"{experts.n_used} of {experts.n_experts} experts, {experts.hidden_dim} wide"
            found.append(text + (f", and {shared} shared" if shared else ""))
    return "; ".join(dict.fromkeys(found))


def _each(of_layers: Iterable[int]) -> str:
    """One number where all layers have the same, otherwise each that occurs."""
    return " or ".join(map(str, sorted(set(of_layers))))


def _size(n_bytes: int) -> str:
    """In decimal units: 16.3 MB."""
    value = float(n_bytes)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.2f} GB"
