"""A conversation that does not fit loses its beginning, with `truncation: auto`.

Owns which messages go first. What the model is told before the conversation stays, and so does the
last message; a result goes with its call.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from engine import ContextLengthError

from ...chat.prompt import prompt_ids
from ...chat.turn import ChatTurn
from ...request.options import Options
from ...request.unknown_fields import Warnings
from ...service import Service
from .conversation import SYSTEM_ROLES


async def fitted(service: Service, turn: ChatTurn, options: Options) -> tuple[ChatTurn, Warnings]:
    """The turn with as many messages as fit, and a warning if that is not all of them.

    Raises what `prompt_ids` raises, ContextLengthError only if the last message is too long.
    """
    room = service.engine.max_seq_len - max(1, options.max_tokens or 1)
    if await _fits(service, turn, room):
        return turn, []
    told, said = _divided(turn.messages)
    if len(said) == 1:
        return turn, []
    low, high = 1, len(said) - 1  # so many are left out
    while low < high:
        middle = (low + high) // 2
        if await _fits(service, _without(turn, told, said, middle), room):
            high = middle
        else:
            low = middle + 1
    message = f"the first {low} messages were left out: the conversation did not fit"
    warnings = [{"param": "truncation", "action": "ignored", "message": message}]
    return _without(turn, told, said, low), warnings


async def _fits(service: Service, turn: ChatTurn, room: int) -> bool:
    try:
        return len(await prompt_ids(service, turn)) <= room
    except ContextLengthError:
        return False


def _divided(messages: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    n_told = 0
    while n_told < len(messages) and messages[n_told]["role"] in SYSTEM_ROLES:
        n_told += 1
    return messages[:n_told], messages[n_told:]


def _without(turn: ChatTurn, told: Sequence[Any], said: Sequence[Any], n: int) -> ChatTurn:
    while n < len(said) - 1 and said[n]["role"] == "tool":
        n += 1
    return replace(turn, messages=[*told, *said[n:]])
