"""The steps of a stream up to an earlier place of it. Owns how a step is cut."""

from collections.abc import Sequence

from engine import StreamResult

from .jobs import Step

_OF_THE_END = ("eos", "eos_reason", "stop_string", "stop_token_id", "dropped", "dropped_text")


def first_steps(steps: Sequence[Step], n_tokens: int, n_characters: int) -> list[Step]:
    """Those that make the first `n_tokens` tokens and `n_characters` characters, the last of them
    cut. None of them ends the text.
    """
    kept: list[Step] = []
    for step in steps:
        result = step.result
        tokens = (*result.tokens, *result.dropped)[:n_tokens]
        chunk = (result.chunk + result.dropped_text)[:n_characters]
        if not tokens and not chunk:
            continue
        fields = {name: value for name, value in vars(result).items() if name not in _OF_THE_END}
        kept.append(
            step._replace(result=StreamResult({**fields, "chunk": chunk, "tokens": tokens}))
        )
        n_tokens -= len(tokens)
        n_characters -= len(chunk)
    return kept
