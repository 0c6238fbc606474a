"""The ops of a recurrent layer, between its two projections.

Owns which ops a configuration means. Knows no residual and no cache but the states it is given.
"""

from collections.abc import Iterator
from typing import Any

from ..checkpoint.recurrent import DeltaNetConfig, Mamba2Config, Recurrent, ShortConvConfig
from ..device.arguments import Array, DeltaNet, GatedNorm, Mamba2, ShortConv, States
from ..device.ops import Program
from .weights import RecurrentWeights


def append_recurrent(
    program: Program,
    config: Recurrent,
    weights: RecurrentWeights,
    states: States,
    *,
    x: Array,
    out: Array,
    eps: float,
) -> None:
    """`x`: the rows (rows, config.in_dim) of the projection before it; `out`: (rows,
    config.out_dim), for the one behind it.
    """
    match config:
        case ShortConvConfig():
            program.append(
                ShortConv(
                    x=x,
                    states=states,
                    conv=weights.conv,
                    bias=weights.conv_bias,
                    kernel=config.kernel,
                    out=out,
                )
            )
        case DeltaNetConfig():
            program.append(_delta_net(config, weights, states, x=x, out=out, eps=eps))
        case Mamba2Config():
            for op in _mamba2(config, weights, states, x=x, out=out, eps=eps):
                program.append(op)


def _delta_net(
    config: DeltaNetConfig,
    weights: RecurrentWeights,
    states: States,
    *,
    x: Array,
    out: Array,
    eps: float,
) -> DeltaNet[Any, Any]:
    a_log, dt_bias, norm = weights.a_log, weights.dt_bias, weights.norm
    assert a_log is not None
    assert dt_bias is not None
    assert norm is not None
    return DeltaNet(
        x=x,
        states=states,
        config=config,
        conv=weights.conv,
        a_log=a_log,
        dt_bias=dt_bias,
        norm=norm,
        eps=eps,
        out=out,
    )


def _mamba2(
    config: Mamba2Config,
    weights: RecurrentWeights,
    states: States,
    *,
    x: Array,
    out: Array,
    eps: float,
) -> Iterator[Mamba2[Any, Any] | GatedNorm[Any]]:
    a_log, dt_bias, skip = weights.a_log, weights.dt_bias, weights.skip
    assert a_log is not None
    assert dt_bias is not None
    assert skip is not None
    yield Mamba2(
        x=x,
        states=states,
        config=config,
        conv=weights.conv,
        conv_bias=weights.conv_bias,
        a_log=a_log,
        dt_bias=dt_bias,
        skip=skip,
        out=out,
    )
    yield GatedNorm(
        x=out,
        gate=x,
        gate_scale=config.scales.z,
        norm=weights.norm,
        n_groups=config.n_groups,
        gate_first=config.norm == "gate_first",
        eps=eps,
    )
