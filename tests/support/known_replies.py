"""A server whose replies are known: for clients, feature by feature."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.support.client_process import API_KEY
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer, live_server

HELLO = "noon over Oslo"
# A word of the prompt -> the reply. The first that is there counts.
REPLIES = {
    b"rain over": b"It rains.",
    b"hello": HELLO.encode(),
    b"call": b'<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>',
    b"think": b"<think>hm</think>noon",
}


@contextmanager
def known_server(*, api_keys: Sequence[str] = (API_KEY,)) -> Iterator[LiveServer]:
    """What asks for none of these words gets a text that ends with the context, slowly: after
    more than a minute, so that somebody on a busy machine has the time to stop it.
    """
    fake = FakeEngine(max_seq_len=16_384)
    fake.writes(reasoning=True)
    fake.model.replies = REPLIES
    fake.model.token_time = 0.005
    with live_server(fake.as_engine, api_keys=api_keys) as server:
        yield server
