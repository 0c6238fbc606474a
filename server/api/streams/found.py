"""The stream that a path names."""

from ...errors import RequestError
from ...kept.kept import Kept
from ...kept.streams import KeptStream
from ...service import Service


def found_stream(service: Service, key: str, id_: str) -> tuple[Kept, KeptStream]:
    """The caller's stream of that id. Raises StreamNotFoundError, and RequestError for an answer of
    several.
    """
    kept = service.kept.answer(key, id_)
    named = [stream for stream in kept.streams if stream.id == id_]
    if not named:
        ids = ", ".join(stream.id for stream in kept.streams[:4])
        raise RequestError(f"the answer has several streams: ask for one of {ids}", param="id")
    return kept, named[0]
