"""Whether a row of logits leaves a token to draw, and what is at fault if it does not.

Owns the errors of the sampler op: the model's logits, the request's settings, its bans.
"""

import numpy as np

from ...errors import InvalidInputError, NoTokenError, NumericsError
from ..logits import Logits
from ..request import SampleRequest


def check_finite(logits: Logits) -> None:
    """Raise NumericsError, naming the first bad token, unless the model's `logits` (V,) can be
    sampled.
    """
    token_id = _first_unusable(logits)
    if token_id is not None:
        raise NumericsError(
            f"logits: {logits[token_id]} at token {token_id}, allowed: finite or -inf"
        )
    if not np.isfinite(logits).any():
        raise NumericsError(f"logits: none of {logits.size} is finite; at least one must be")


def check_adjusted(logits: Logits, request: SampleRequest) -> None:
    """The same for logits (V,) after penalties and biases, which are the request's own doing:
    raise InvalidInputError, or NoTokenError if no token is left.
    """
    fields = _adjusting(request)
    token_id = _first_unusable(logits)
    if token_id is not None:
        raise InvalidInputError(
            f"{' and '.join(fields)} make the logit of token {token_id} {logits[token_id]}, "
            "allowed: finite or -inf",
            param=fields[0],
        )
    if not np.isfinite(logits).any():
        if _forbids(request):
            fields = ["logit_bias"]
        raise NoTokenError(
            f"no token is left to draw: {' and '.join(fields)} removed all {logits.size}",
            param=fields[0],
        )


def check_any_left(logits: Logits, request: SampleRequest) -> None:
    """Raise NoTokenError if mask and bans left no token of `logits` (V,)."""
    if not np.isfinite(logits).any():
        biases = " and logit_bias" if _forbids(request) else ""
        raise NoTokenError(
            "no token is left to draw: "
            f"the allowed and banned tokens{biases} removed all {logits.size}",
            param="banned_tokens" if request.mask is None else "allowed_tokens",
        )


def _first_unusable(logits: Logits) -> int | None:
    bad = np.flatnonzero(np.isnan(logits) | (logits == np.inf))
    return int(bad[0]) if bad.size else None


def _forbids(request: SampleRequest) -> bool:
    """Whether one of its biases forbids a token."""
    return bool((request.bias_deltas == -np.inf).any())


def _adjusting(request: SampleRequest) -> list[str]:
    """The settings that change logits before mask and bans, the likeliest culprit first."""
    is_on = {
        "logit_bias": request.bias_ids.size > 0,
        "repetition_penalty": request.repetition_penalty != 1.0,
        "frequency_penalty": request.frequency_penalty != 0.0,
        "presence_penalty": request.presence_penalty != 0.0,
        "dry_multiplier": request.dry_multiplier != 0.0,
    }
    return [name for name, on in is_on.items() if on]
