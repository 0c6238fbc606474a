"""Which tokens of a stream had been shown at a place, from its tokens alone.

Owns that rule, and the text of tokens that were generated earlier. What is held depends only on the
tokens and on what their text is searched for, so a snapshot need not say it. Knows no model.
"""

from collections.abc import Sequence

from .healing import Healing
from .held import HeldTokens
from .history import History
from .options import StreamOptions
from .parts import Parts
from .result import TokenRecord
from .snapshot import Snapshot

_MOST_BYTES = 4  # of a character


def shown_bytes(
    token_ids: Sequence[int], options: StreamOptions, parts: Parts, healing: Healing | None
) -> list[bytes]:
    """What each token of a completion adds to its text.

    Raises InvalidInputError if the first does not begin with the bytes to heal.
    """
    shown = [parts.shown(token_id, options) for token_id in token_ids]
    if healing is not None and shown:
        shown[0] = healing.added(shown[0])
    return shown


def n_shown(snapshot: Snapshot, shown: Sequence[bytes]) -> int:
    """How many of the first tokens had been released in whole. `shown`: the bytes of each."""
    history = History(snapshot)
    segments = snapshot.segments
    held = HeldTokens((), ())
    held.resume(shown[: _first_held(snapshot, shown)])
    for segment, end in zip(
        segments, [*(each.start for each in segments[1:]), len(shown)], strict=True
    ):
        n_pushed = held.n_shown + held.n_held
        if end < n_pushed:
            continue
        stop, banned = segment.options.stop, segment.options.banned_strings
        held = held.with_strings(stop, banned, shown[: held.n_shown])
        for data in shown[n_pushed:end]:
            held.hold(_record(data, held.push(data, is_given=True)))
        held.keep(history.floor(end))
        held.release()
    return held.n_shown


def _first_held(snapshot: Snapshot, shown: Sequence[bytes]) -> int:
    """A token before which none can be held: a string may have begun in it or later."""
    options = [each.options for each in snapshot.segments]
    longest_ban = max(len(string) for each in options for string in ("", *each.banned_strings))
    longest_stop = max(len(string) for each in options for string in ("", *each.stop))
    # A ban holds the whole token in which it may begin, and a stop string that began before that.
    first = _back(shown, len(shown), longest_ban + 1)
    return _back(shown, first, longest_stop)


def _back(shown: Sequence[bytes], index: int, n_characters: int) -> int:
    """The token that begins at least so many characters before token `index`."""
    n_bytes = _MOST_BYTES * n_characters
    while index and n_bytes > 0:
        index -= 1
        n_bytes -= len(shown[index])
    return index


def _record(data: bytes, span: tuple[int, int]) -> TokenRecord:
    """Of a token whose numbers do not matter."""
    return TokenRecord(
        0, data, *span, 0.0, 0.0, 0.0, (), False, 0, 0.0, 0.0, 1.0, "model", None, ()
    )
