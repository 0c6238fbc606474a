"""The last step of a job as it is told: what ended it, and what of it shows."""

from engine import StreamResult

from .jobs import Step


def ended_piece(piece: Step, cause: str) -> Step:
    """`cause`: "time", or "control" for a client that stopped the stream."""
    reason = "length" if cause == "time" else "stop_token"
    result = StreamResult({**vars(piece.result), "eos_reason": reason})
    return piece._replace(result=result, stop_detail=cause)


def with_stop_string(piece: Step, n_shown: int) -> Step:
    """The step with its stop string added; `n_shown`: characters before the step."""
    result = piece.result
    string, start = str(result.stop_string), n_shown + len(result.chunk)
    shown = [token for token in result.dropped if token.text_start < start + len(string)]
    fields = {
        **vars(result),
        "chunk": result.chunk + string,
        "tokens": (*result.tokens, *shown),
        "dropped": result.dropped[len(shown) :],
        "dropped_text": result.dropped_text[len(string) :],
    }
    return piece._replace(result=StreamResult(fields))
