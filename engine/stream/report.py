"""What a completion's results say beside their text: rows of logits, drafts, text taken back.

Owns what has happened since the last result. Knows no sampler and no model but the counts of
drafts.
"""

from collections import deque
from typing import Any

import numpy as np

from ..sampling.logits import Logits, Row
from .decoding import Decoding
from .healing import Healing
from .held import Release, TakenBack
from .options import StreamOptions
from .result import StreamResult, Suppressed, TokenRecord
from .stop_when import StopCondition


class Report:
    """The results of one completion, one after another."""

    def __init__(self, decoding: Decoding, healing: Healing | None, n_reported: int) -> None:
        """`n_reported`: tokens of the completion that were in results of an earlier one."""
        self._decoding = decoding
        self._healing = healing
        self._n_reported = n_reported
        self._rows: deque[Logits] = deque()  # of unreported tokens, if the caller wants them
        self._taken_back: list[Suppressed] = []
        self._n_drafted = self._n_accepted = 0  # in earlier results

    def keep_row(self, row: Row) -> None:
        """The logits of the next token."""
        self._rows.append(row.copy())

    def take_back(self, taken: TakenBack, n_kept: int) -> None:
        """All but `n_kept` tokens of the completion were taken back."""
        self._taken_back.append(Suppressed(taken.text, taken.n_tokens, n_kept))
        for _ in range(min(taken.n_tokens, len(self._rows))):
            self._rows.pop()

    def result(self, release: Release, options: StreamOptions) -> StreamResult:
        """What was released; the completion goes on."""
        return StreamResult(self._fields(release, options))

    def last(
        self,
        release: Release,
        options: StreamOptions,
        reason: str,
        *,
        end_token: TokenRecord | None,
        condition: StopCondition | None,
    ) -> StreamResult:
        """`end_token`: it ended the text and is no part of it; because of `condition`, if given.

        A stop string may be found only now, and then ends the text before that.
        """
        fields = self._fields(release, options)
        fields["eos"] = True
        fields["eos_reason"] = reason if release.stop_string is None else "stop_string"
        fields["stop_string"] = release.stop_string
        fields["dropped"] = release.dropped
        fields["dropped_text"] = release.dropped_text
        if condition is not None:
            fields["stop_condition"] = condition if release.stop_string is None else None
        elif end_token is not None:
            fields["stop_token_id"] = end_token.token_id
        return StreamResult(fields)

    def _fields(self, release: Release, options: StreamOptions) -> dict[str, Any]:
        tokens, dropped, decoding = release.tokens, release.dropped, self._decoding
        fields: dict[str, Any] = {"chunk": release.text, "tokens": tokens}
        if options.return_probabilities:
            fields["probs"] = tuple([token.p_sampled for token in tokens])
        if options.return_logits and (tokens or dropped):
            rows = [self._rows.popleft() for _ in (*tokens, *dropped)]
            fields["logits"] = np.stack(rows)
        if self._taken_back:
            fields["suppressed"] = "".join([each.text for each in self._taken_back])
            fields["taken_back"] = tuple(self._taken_back)
            self._taken_back.clear()
        if self._healing is not None and not self._n_reported and (tokens or dropped):
            fields["healed"] = self._healing.token_id
        if decoding.n_drafted != self._n_drafted or decoding.n_accepted != self._n_accepted:
            fields["n_drafted"] = decoding.n_drafted - self._n_drafted
            fields["n_accepted"] = decoding.n_accepted - self._n_accepted
            self._n_drafted, self._n_accepted = decoding.n_drafted, decoding.n_accepted
        self._n_reported += len(tokens)
        return fields
