"""The functions of feed-forward parts, by name, and the numbers of the one that learns some.

Knows no layer.
"""

import math
from dataclasses import dataclass
from typing import Literal

Activation = Literal["silu", "gelu", "gelu_tanh", "relu2", "clamped", "xielu"]
"""gelu is the exact one, gelu_tanh its usual approximation; relu2 is max(0, x)^2. clamped is
gpt-oss's: g / (1 + e^(-1.702 g)) * (u + 1) with g = min(gate, 7) and u = up within -7 to 7. xielu
has numbers of its own in each layer: see Xielu.
"""


@dataclass(frozen=True, slots=True)
class Xielu:
    """The numbers of one layer's activation, as files store them. It is
    positive x^2 + beta x above 0, and negative (e^min(x, eps) - 1 - x) + beta x elsewhere.
    """

    alpha_p: float
    alpha_n: float
    beta: float
    eps: float

    @property
    def positive(self) -> float:
        return _softplus(self.alpha_p)

    @property
    def negative(self) -> float:
        return self.beta + _softplus(self.alpha_n)


def _softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))
