"""The steps of a stream up to a place of it. Owns how a step is cut, and what of a token that is
only begun belongs to them.
"""

from collections.abc import Sequence

from engine import StreamResult

from .jobs import Step

_OF_THE_END = ("eos", "eos_reason", "stop_string", "stop_token_id", "dropped", "dropped_text")


def with_held(steps: Sequence[Step], choice: int, held: str) -> list[Step]:
    """`steps` of the running `choice`, and the text `held` of a token that is shown in part: a
    stream that goes on elsewhere does not show it again.
    """
    if not held:
        return list(steps)
    clock = steps[-1].clock if steps else 0.0
    return [*steps, Step(choice, StreamResult({"chunk": held}), clock)]


def first_steps(steps: Sequence[Step], n_tokens: int, n_characters: int) -> list[Step]:
    """Those that make the first `n_tokens` tokens and `n_characters` characters, the last of them
    cut. None of them ends the text.
    """
    kept: list[Step] = []
    for step in steps:
        result = step.result
        fields = vars(result)
        if fields.keys().isdisjoint(_OF_THE_END):
            n, length = len(result.tokens), len(result.chunk)
            if n <= n_tokens and length <= n_characters:  # as nearly all
                if n or length:
                    kept.append(step)
                n_tokens -= n
                n_characters -= length
                continue
        tokens = (*result.tokens, *result.dropped)[:n_tokens]
        chunk = (result.chunk + result.dropped_text)[:n_characters]
        if not tokens and not chunk:
            continue
        own = {name: value for name, value in fields.items() if name not in _OF_THE_END}
        kept.append(step._replace(result=StreamResult({**own, "chunk": chunk, "tokens": tokens})))
        n_tokens -= len(tokens)
        n_characters -= len(chunk)
    return kept
