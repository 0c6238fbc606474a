"""Which format each matrix of a model gets.

Owns the bits of embedding and head, where rounding costs more than in the layers, the mixture that
is called 4bit on the CPU, what lies in super-blocks, and that stored blocks stay what they are.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..checkpoint.config import LayerConfig, ModelConfig
from ..checkpoint.recurrent import DeltaNetConfig, Mamba2Config, Recurrent
from ..checkpoint.sources import LayerSources, Source
from ..checkpoint.tensors import model_sources
from .formats import DTYPES, EXACT_FORMATS, Format, in_super_blocks, matrix_bytes


@dataclass(frozen=True, slots=True)
class LayerFormats:
    """The formats of a layer's matrices."""

    wqkv: Format
    wo: Format
    w_gate_up: Format
    w_down: Format
    router: str = ""
    experts_gate_up: Format = ""  # of each expert; these three only where there are experts
    experts_down: str = ""
    latent_in: str = ""  # these two only where experts have another width
    latent_out: str = ""
    w_gate: str = ""  # only where the output of attention is gated
    embedding_gate: str = ""  # these two only where the layer adds an embedding
    embedding_out: str = ""


@dataclass(frozen=True, slots=True)
class ModelFormats:
    """The formats of a model's matrices."""

    embedding: str
    head: str  # that of the embedding, if it is the same matrix
    layers: tuple[LayerFormats, ...]
    layer_projection: str = ""  # only where there are embeddings of each layer


# Where the weights of each matrix of a layer come from.
_SOURCES = {
    "wqkv": "wqkv",
    "wo": "wo",
    "w_gate_up": "w_gate_up",
    "w_down": "w_down",
    "router": "w_router",
    "experts_gate_up": "experts_gate_up",
    "experts_down": "experts_down",
    "latent_in": "w_latent_in",
    "latent_out": "w_latent_out",
    "w_gate": "w_gate",
    "embedding_gate": "w_embedding_gate",
    "embedding_out": "w_embedding_out",
}

# By how much less a model's output changes per byte, measured on a real model (bench/RESULTS.md).
_MOST_SENSITIVE_FIRST = ("wo", "w_down", "experts_down", "wqkv", "w_gate_up", "experts_gate_up")


def uniform_formats(config: ModelConfig, format_: str) -> ModelFormats:
    """All layers in `format_`; for devices that have 8bit and 4bit."""
    tables = "8bit" if format_ == "4bit" else format_
    return ModelFormats(tables, tables, _layers(config, format_), tables)


def mixed_formats(config: ModelConfig, format_: str) -> ModelFormats:
    """For devices that have 6bit and 5bit too. `4bit` has five bits in as many matrices as fit into
    the bytes that the head saves with six bits instead of eight. What can be lies in super-blocks.
    """
    tables = "6bit" if format_ in ("5bit", "4bit") else format_
    layers = list(_layers(config, format_))
    if format_ == "4bit":
        _add_fifth_bits(config, layers)
    return _in_super_blocks(config, ModelFormats(tables, tables, tuple(layers), tables))


def _in_super_blocks(config: ModelConfig, formats: ModelFormats) -> ModelFormats:
    def held(format_: Format, parts: Sequence[Source]) -> Format:
        if not parts:
            return format_
        n_in = parts[0].part_shape[-1]
        if isinstance(format_, str):
            return in_super_blocks(format_, n_in)
        return tuple(in_super_blocks(each, n_in) for each in format_)

    def held_layer(own: LayerFormats, sources: LayerSources) -> LayerFormats:
        found = {
            kind: held(getattr(own, kind), getattr(sources, name))
            for kind, name in _SOURCES.items()
        }
        return replace(own, **found)  # type: ignore[arg-type]

    table = in_super_blocks(formats.embedding, config.dim)
    layers = zip(formats.layers, model_sources(config).layers, strict=True)
    return ModelFormats(
        table,
        table,
        tuple(held_layer(*each) for each in layers),
        in_super_blocks(formats.layer_projection, config.dim),
    )


def stored_formats(config: ModelConfig, dtypes: Mapping[str, str]) -> ModelFormats:
    """What loses nothing of tensors that are stored in these dtypes, by name."""
    sources = model_sources(config)

    def of_one(part: Source) -> str:
        return EXACT_FORMATS[dtypes[part.name]]

    def of(parts: Sequence[Source]) -> Format:
        formats = tuple(map(of_one, parts))
        return formats if len(set(formats)) > 1 else "".join(formats[:1])

    def of_all(parts: Sequence[Source]) -> str:
        """Of matrices that must have one format."""
        formats = set(map(of_one, parts))
        return formats.pop() if len(formats) == 1 else "float32"

    def of_gate_up(layer: LayerSources) -> Format:
        parts, n = layer.experts_gate_up, layer.n_gate_up
        formats = tuple(of_all(parts[i::n]) for i in range(n))
        return formats if len(set(formats)) > 1 else of_all(parts)

    head = sources.embedding if config.tie_embeddings else sources.head
    return ModelFormats(
        of_one(sources.embedding),
        of_one(head),
        tuple(
            LayerFormats(
                of(layer.wqkv),
                of(layer.wo),
                of(layer.w_gate_up),
                of(layer.w_down),
                router=of_all(layer.w_router),
                experts_gate_up=of_gate_up(layer),
                experts_down=of_all(layer.experts_down),
                latent_in=of_all(layer.w_latent_in),
                latent_out=of_all(layer.w_latent_out),
                w_gate=of_all(layer.w_gate),
                embedding_gate=of_all(layer.w_embedding_gate),
                embedding_out=of_all(layer.w_embedding_out),
            )
            for layer in sources.layers
        ),
        of_all(sources.layer_projection),
    )


def keeping_mxfp4(
    formats: ModelFormats, config: ModelConfig, dtypes: Mapping[str, str]
) -> ModelFormats:
    """The same, but experts that are stored in MXFP4 stay so: nothing holds them in fewer bytes
    without loss.
    """

    def are_kept(parts: Sequence[Source]) -> bool:
        return {dtypes.get(part.name) for part in parts} == {"MXFP4"}

    layers = list(formats.layers)
    for index, sources in enumerate(model_sources(config).layers):
        if are_kept(sources.experts_gate_up):
            layers[index] = replace(layers[index], experts_gate_up="mxfp4")
        if are_kept(sources.experts_down):
            layers[index] = replace(layers[index], experts_down="mxfp4")
    return replace(formats, layers=tuple(layers))


def _layers(config: ModelConfig, format_: str) -> tuple[LayerFormats, ...]:
    # A rounded router chooses other experts, and is a small part of what is read.
    small = _of_small(format_)
    layer = LayerFormats(*4 * (format_,), small, *7 * (format_,))
    inputs = {own: _inputs(config, format_, own) for own in set(_recurrent(config))}
    return tuple(
        layer if own is None else replace(layer, wqkv=inputs[own]) for own in _recurrent(config)
    )


def _recurrent(config: ModelConfig) -> list[Recurrent | None]:
    return [layer.recurrent for layer in config.layers]


def _of_small(format_: str) -> str:
    """The format of matrices with few rows, whose errors cost more than their bytes."""
    return format_ if format_ in DTYPES else "bfloat16"


def _inputs(config: ModelConfig, format_: str, recurrent: Recurrent | None) -> Format:
    """Of what is in front of attention, or of what stands in its place: an error in the decay of a
    state, or in how much is written into it, stays there.
    """
    small = _of_small(format_)
    if small == format_:
        return format_
    if isinstance(recurrent, Mamba2Config):
        return format_, small  # dt
    if not isinstance(recurrent, DeltaNetConfig):
        return format_
    index = _recurrent(config).index(recurrent)
    n_before = len(model_sources(config).layers[index].wqkv) - 3
    return (*[format_] * n_before, small, small, format_)  # b and a, then z


def _add_fifth_bits(config: ModelConfig, layers: list[LayerFormats]) -> None:
    head = config.vocab_size, config.dim
    left = matrix_bytes("8bit", *head) - matrix_bytes("6bit", *head)
    for kind, index, shape in _matrices(config):
        more = matrix_bytes("5bit", *shape) - matrix_bytes("4bit", *shape)
        if more <= left:
            left -= more
            layer, recurrent = layers[index], config.layers[index].recurrent
            if kind == "wqkv":
                layers[index] = replace(layer, wqkv=_inputs(config, "5bit", recurrent))
            else:
                layers[index] = replace(layer, **{kind: "5bit"})


def _matrices(config: ModelConfig) -> Iterator[tuple[str, int, tuple[int, int]]]:
    """Kind, layer and shape of each matrix, the most sensitive ones first."""
    for kind in _MOST_SENSITIVE_FIRST:
        for index, layer in enumerate(config.layers):
            shape = _shapes(config.dim, layer).get(kind)
            if shape is not None:
                yield kind, index, shape


def _shapes(dim: int, layer: LayerConfig) -> dict[str, tuple[int, int]]:
    mlp, experts = layer.mlp, layer.mlp.experts
    shapes: dict[str, tuple[int, int]] = {}
    if layer.has_mixer:
        shapes |= {"wqkv": (layer.in_dim, dim), "wo": (dim, layer.out_dim)}
    if mlp.hidden_dim:
        shapes |= {"w_gate_up": (mlp.inner_dim, dim), "w_down": (dim, mlp.hidden_dim)}
    if experts is not None:  # what is read for a token
        width, n_inner = experts.width(dim), (2 if mlp.gated else 1) * experts.hidden_dim
        shapes |= {
            "experts_gate_up": (experts.n_used * n_inner, width),
            "experts_down": (experts.n_used * width, experts.hidden_dim),
        }
    return shapes
