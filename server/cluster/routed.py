"""What goes between the door and a replica: a request, the head of its answer, then bytes.

Owns these types, which both sides unpickle. Knows no Ray and no app.
"""

from dataclasses import dataclass, field

HeaderList = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a request brings to compute, as far as a router needs to know it."""

    steps: tuple[bytes, ...] = ()
    """See `prompt_steps`."""
    n_bytes: int = 0
    """Of its text."""


class Delivery:
    """What has become of an answer, for the process of the door: another one gets a new one."""

    __slots__ = ("is_complete",)

    def __init__(self) -> None:
        self.is_complete = False
        """The client has all of it, and may ask again before the replica says that it is done."""

    def __reduce__(self) -> tuple[type["Delivery"], tuple[()]]:
        return Delivery, ()


@dataclass(frozen=True, slots=True)
class Routed:
    """A request whose body has been read."""

    method: str
    path: str
    """Decoded, as in an ASGI scope."""
    raw_path: bytes
    query: bytes
    headers: HeaderList
    body: bytes
    client: tuple[str, int] | None
    scheme: str = "http"
    replica: str = ""
    """The name of the replica that has what the request is about; any if it is empty."""
    prompt: Prompt | None = None
    """None: the request does not wait for the engine."""
    delivery: Delivery = field(default_factory=Delivery, compare=False)


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of an answer."""

    status: int
    headers: HeaderList
    body: bytes
    """As much as was there with it."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """A replica has the request, before it does anything with it."""

    replica: str
    """Its name."""


Part = Accepted | Head | bytes
"""Of an answer, in this order; any number of bytes."""
