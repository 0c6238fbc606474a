"""The results of a stream, one token at a time.

Owns how held text is divided among the tokens that are released with it, so that each token comes
with its own text. Knows no request and no shape of an answer.
"""

from collections import deque
from collections.abc import Callable, Sequence

from engine import StreamResult, TokenRecord

# What a result says of the time before its first token.
_BEFORE = ("suppressed", "taken_back", "healed")


class TokenResults:
    """Called instead of `stream_ex`: returns the same results, one token per call.

    Tokens that share a character come together, with the character. Text that is released before
    its token (before a possible stop string) waits for the token. The last result has the rest.
    """

    def __init__(
        self, step: Callable[[], StreamResult], *, n_said: int = 0, held: str = ""
    ) -> None:
        """`n_said`: characters that have been returned of an earlier stream, `held`: those that it
        has shown after them.
        """
        self._step = step
        self._results: deque[StreamResult] = deque()  # divided, not yet returned
        self._n_said = n_said  # characters returned so far
        self._text = held  # the text after them, of a token that is still held

    @property
    def is_behind(self) -> bool:
        """Whether results wait that `step` has returned."""
        return bool(self._results)

    @property
    def held(self) -> str:
        """Text that has been shown and waits for the rest of its token."""
        return self._text

    def follow(self, step: Callable[[], StreamResult]) -> None:
        """Go on with another stream, at the same place."""
        self._step = step

    def go_back(self, n_characters: int) -> None:
        """The stream has gone back to so many characters."""
        self._text = self._text[: max(0, n_characters - self._n_said)]
        self._n_said = min(self._n_said, n_characters)

    def __call__(self) -> StreamResult:
        if self._results:
            return self._results.popleft()
        result = self._step()
        tokens, n_out = result.tokens, self._n_said + len(result.chunk)
        if len(tokens) == 1 and not self._text and tokens[0].text_end == n_out:
            self._n_said = n_out
            return result
        self._divide(result)
        return self._results.popleft()

    def _divide(self, result: StreamResult) -> None:
        if result.eos_reason == "aborted" and self._text:
            # It has been shown, and the last result of a stream that is cut off is told to nobody.
            self._results.append(StreamResult({"chunk": self._text}))
            self._n_said += len(self._text)
            self._text = ""
        self._text += result.chunk
        *groups, last = _groups(result.tokens)
        fields = dict(vars(result))
        # What happened before the first token.
        before = {name: fields.pop(name) for name in _BEFORE if name in fields and groups}
        for group in groups:
            fields_of = {"chunk": self._text_of(group), "tokens": group}
            self._results.append(StreamResult({**before, **fields_of}))
            before = {}
        if result.eos:
            chunk, self._text = self._text, ""
        else:
            chunk = self._text_of(last)
        self._results.append(StreamResult({**fields, "chunk": chunk, "tokens": last}))

    def _text_of(self, group: Sequence[TokenRecord]) -> str:
        end = max([self._n_said, *(token.text_end for token in group)])
        n = end - self._n_said
        chunk, self._text = self._text[:n], self._text[n:]
        self._n_said = end
        return chunk


def _groups(tokens: Sequence[TokenRecord]) -> list[tuple[TokenRecord, ...]]:
    """The tokens one by one, except that those that share a character stay together. Always at
    least one group, which may be empty.
    """
    groups: list[tuple[TokenRecord, ...]] = []
    end = 0  # of the last group
    for token in tokens:
        if groups and token.text_start < end:
            groups[-1] = (*groups[-1], token)
        else:
            groups.append((token,))
        end = max(end, token.text_end)
    return groups or [()]
