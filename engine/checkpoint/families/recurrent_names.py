"""Where the tensors of recurrent layers are, and those of gated attention.

Owns the way from names and a configuration to sources. The families fill in the names. Knows no
file.
"""

from dataclasses import dataclass
from itertools import pairwise

from ..config import AttentionConfig
from ..recurrent import DeltaNetConfig, Mamba2Config, Recurrent, ShortConvConfig
from ..sources import Source, Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentNames:
    """Names without the prefix of the layer, and without ".weight" and ".bias"."""

    inputs: tuple[str, ...]
    """One name: that of a short convolution. Two: q, k, v and z of each key head in turn, then b
    and a likewise. Three: q, k and v; z; b and a of each key head in turn. Four: q, k and v; z; b;
    a. That of Mamba 2 is one name: z, x, B, C, dt.
    """
    conv: str
    output: str
    norm: str = ""
    a_log: str = ""
    """This and the next two with all of the name."""
    dt_bias: str = ""
    skip: str = ""
    flat_conv: bool = False
    """Whether the weights of a convolution are stored as (channels, kernel)."""
    columns: bool = False
    """Whether the numbers of heads of Mamba 2 are columns, and the norms of groups rows."""

    def sources(self, prefix: str, config: Recurrent, dim: int) -> dict[str, Sources]:
        """The fields of LayerSources that recurrent layers have."""
        output = f"{prefix}{self.output}"
        found = {"wo": (Source(f"{output}.weight", (dim, config.out_dim)),)}
        match config:
            case ShortConvConfig():
                return found | self._short_conv(prefix, config, dim)
            case DeltaNetConfig():
                return found | self._delta_net(prefix, config, dim)
            case Mamba2Config():
                return found | self._mamba2(prefix, config, dim)

    def _short_conv(self, prefix: str, config: ShortConvConfig, dim: int) -> dict[str, Sources]:
        (name,) = self.inputs
        found: dict[str, Sources] = {
            "wqkv": (Source(f"{prefix}{name}.weight", (config.in_dim, dim)),),
            "conv": self._conv(prefix, config.dim, config.kernel),
        }
        if config.bias:
            found |= {
                "bqkv": (Source(f"{prefix}{name}.bias", (config.in_dim,)),),
                "conv_bias": (Source(f"{prefix}{self.conv}.bias", (config.dim,)),),
                "bo": (Source(f"{prefix}{self.output}.bias", (dim,)),),
            }
        return found

    def _delta_net(self, prefix: str, config: DeltaNetConfig, dim: int) -> dict[str, Sources]:
        heads = (config.n_v_heads,)
        return {
            "wqkv": self._inputs(prefix, config, dim),
            "conv": self._conv(prefix, config.conv_dim, config.kernel),
            "a_log": (Source(prefix + self.a_log, heads),),
            "dt_bias": (Source(prefix + self.dt_bias, heads),),
            "state_norm": (Source(f"{prefix}{self.norm}.weight", (config.v_dim,)),),
        }

    def _mamba2(self, prefix: str, config: Mamba2Config, dim: int) -> dict[str, Sources]:
        (name,) = (prefix + each for each in self.inputs)
        whole, cut = (config.in_dim, dim), config.in_dim - config.n_heads
        found: dict[str, Sources] = {
            "wqkv": tuple(
                Source(f"{name}.weight", whole, rows=rows)
                for rows in ((0, cut), (cut, config.in_dim))
            ),
            "conv": self._conv(prefix, config.conv_dim, config.kernel),
            "a_log": self._of_heads(prefix + self.a_log, config),
            "dt_bias": (Source(prefix + self.dt_bias, (config.n_heads,)),),
            "skip": self._of_heads(prefix + self.skip, config),
        }
        for field, bias, n, exists in (
            ("bqkv", name, config.in_dim, config.in_bias),
            ("conv_bias", prefix + self.conv, config.conv_dim, config.conv_bias),
            ("bo", prefix + self.output, dim, config.out_bias),
        ):
            if exists:
                found[field] = (Source(f"{bias}.bias", (n,)),)
        if config.norm:
            n, groups = config.out_dim, config.n_groups
            shape = (groups, n // groups) if self.columns else (n,)
            norm = Source(f"{prefix}{self.norm}.weight", shape, flattened=self.columns)
            found["state_norm"] = (norm,)
        return found

    def _of_heads(self, name: str, config: Mamba2Config) -> Sources:
        shape = (config.n_heads, 1) if self.columns else (config.n_heads,)
        return (Source(name, shape, flattened=self.columns),)

    def _inputs(self, prefix: str, config: DeltaNetConfig, dim: int) -> Sources:
        """q, k, v, b, a, z."""
        n_heads, n_groups = config.n_v_heads, config.n_k_heads
        names = [f"{prefix}{name}.weight" for name in self.inputs]
        if len(names) == 4:
            qkv, z, b, a = names
            return (
                Source(qkv, (config.conv_dim, dim)),
                Source(b, (n_heads, dim)),
                Source(a, (n_heads, dim)),
                Source(z, (config.out_dim, dim)),
            )
        *_, ba = names
        k_dim, own = config.k_dim, n_heads // n_groups
        b_part, a_part = (
            Source(ba, (2 * n_heads, dim), groups=n_groups, rows=rows)
            for rows in ((0, own), (own, 2 * own))
        )
        if len(names) == 3:
            qkv, z, _ = names
            whole = Source(qkv, (config.conv_dim, dim))
            return whole, b_part, a_part, Source(z, (config.out_dim, dim))
        qkvz, _ = names
        values = own * config.v_dim
        ends = (0, k_dim, 2 * k_dim, 2 * k_dim + values, 2 * (k_dim + values))
        q, k, v, z_part = (
            Source(qkvz, (n_groups * ends[-1], dim), groups=n_groups, rows=rows)
            for rows in pairwise(ends)
        )
        return q, k, v, b_part, a_part, z_part

    def _conv(self, prefix: str, n_channels: int, kernel: int) -> Sources:
        shape = (n_channels, kernel) if self.flat_conv else (n_channels, 1, kernel)
        return (Source(f"{prefix}{self.conv}.weight", shape, flattened=True),)


def gated_queries(name: str, attention: AttentionConfig, n_in: int | None) -> tuple[Source, Source]:
    """Queries and gates, which take turns head by head in one tensor; the bias if `n_in` is
    None.
    """
    shape = (2 * attention.q_dim,) if n_in is None else (2 * attention.q_dim, n_in)
    whole = f"{name}.{'bias' if n_in is None else 'weight'}"
    n, width = attention.n_heads, attention.head_dim
    queries, gates = (
        Source(whole, shape, groups=n, rows=rows) for rows in ((0, width), (width, 2 * width))
    )
    return queries, gates
