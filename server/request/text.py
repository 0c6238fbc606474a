"""Text of a request: whether it can be encoded, and how much of it is long."""

from ..errors import RequestError

# From here on, text is encoded beside the event loop: about a millisecond's work.
LONG_TEXT = 8192


def check_text(text: str, *, param: str) -> None:
    """Raise for half of a surrogate pair, which JSON's escapes can spell and no encoding can."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RequestError(f"{param} holds a lone surrogate", param=param) from None
