"""Text of a request: whether it can be encoded, how much of it is long, and the negative prompt."""

from engine import Engine

from ..errors import RequestError
from ..http.large_bodies import LargeBodies

# Text of this many characters is encoded in a thread: about a millisecond's work.
LONG_TEXT = 8192


def check_text(text: str, *, param: str) -> None:
    """Raise RequestError for a lone surrogate, which JSON can spell and UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RequestError(f"{param} holds a lone surrogate", param=param) from None


async def negative_ids(
    engine: Engine, large_bodies: LargeBodies, text: str | None
) -> list[int] | None:
    """The ids of the prompt to lead away from, if there is one."""
    if not text:
        return None

    def encode() -> list[int]:
        engine.check_length(text, param="negative_prompt")
        return engine.tokenizer.encode(text)

    return await large_bodies.run(encode, len(text), inline_below=LONG_TEXT)
