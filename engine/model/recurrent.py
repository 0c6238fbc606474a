"""The op of a recurrent layer, between its two projections.

Owns which op a configuration means. Knows no residual and no cache but the states it is given.
"""

from typing import Any

from ..checkpoint.recurrent import DeltaNetConfig, Recurrent, ShortConvConfig
from ..device.arguments import Array, DeltaNet, ShortConv, States
from .weights import RecurrentWeights


def recurrent_op(
    config: Recurrent,
    weights: RecurrentWeights,
    states: States,
    *,
    x: Array,
    out: Array,
    eps: float,
) -> ShortConv[Any, Any] | DeltaNet[Any, Any]:
    """`x`: the rows (rows, config.in_dim) of the projection before it; `out`: (rows,
    config.out_dim), for the one behind it.
    """
    match config:
        case ShortConvConfig():
            return ShortConv(
                x=x,
                states=states,
                conv=weights.conv,
                bias=weights.conv_bias,
                kernel=config.kernel,
                out=out,
            )
        case DeltaNetConfig():
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
