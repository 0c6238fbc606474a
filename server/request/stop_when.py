"""From the `stop_when` of a request to the engine's conditions, and its time limit."""

from engine import Repeat, StopWhen

from ..errors import RequestError
from ..schema.stop_when import StopWhen as StopWhenFields

_DEFAULT_TIMES = 3


def stop_conditions(wire: StopWhenFields | None) -> StopWhen | None:
    """What ends the text, but for the time. Raises RequestError and InvalidInputError."""
    if wire is None:
        return None
    conditions = (wire.entropy_gt, wire.mean_logprob_lt, wire.p_eos_gt, wire.repeat)
    if all(each is None for each in conditions):
        if wire.seconds is None:
            raise RequestError(
                "stop_when asks for nothing: send entropy_gt, mean_logprob_lt, p_eos_gt, repeat or "
                "seconds in it, or leave it out",
                param="stop_when",
            )
        return None
    repeat = wire.repeat
    times = _DEFAULT_TIMES if repeat is None or repeat.times is None else repeat.times
    return StopWhen(
        entropy_gt=wire.entropy_gt,
        mean_logprob_lt=wire.mean_logprob_lt,
        p_eos_gt=wire.p_eos_gt,
        repeat=None if repeat is None else Repeat(repeat.window, times),
    )


def time_limit(wire: StopWhenFields | None, milliseconds: int | None) -> float | None:
    """Seconds of decoding: what `stop_when` says, or `t_max_predict_ms`, if it is above 0."""
    limit = milliseconds / 1000 if milliseconds is not None and milliseconds > 0 else None
    seconds = None if wire is None else wire.seconds
    if seconds is not None and limit is not None and seconds != limit:
        raise RequestError(
            "stop_when.seconds and t_max_predict_ms are two names of one setting, and their values "
            "differ: send one of them",
            param="stop_when.seconds",
        )
    return limit if seconds is None else seconds
