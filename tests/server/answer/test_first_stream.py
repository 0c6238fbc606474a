"""The first answer of a server, which waits for nothing that a start could have done."""

import subprocess
import sys

_IMPORTED_BY_A_STREAM = """
import asyncio, sys
from urllib.parse import urlsplit
from server.commands.serve import load_app
from server.settings import Settings
from tests.support.asgi_server import asgi_server

BODY = b'{"prompt": "Once", "max_tokens": 3, "stream": true}'
REQUEST = (
    b"POST /v1/completions HTTP/1.1\\r\\nhost: 127.0.0.1\\r\\nconnection: close\\r\\n"
    b"content-type: application/json\\r\\ncontent-length: %d\\r\\n\\r\\n" % len(BODY)
) + BODY

async def imported():
    settings = Settings(port=0)
    app, _ = load_app(settings)
    async with asgi_server(app, settings) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
        before = set(sys.modules)
        writer.write(REQUEST)
        answer = await reader.read()
        writer.close()
        assert answer.startswith(b"HTTP/1.1 200") and b"[DONE]" in answer, answer
        return set(sys.modules) - before

print(*sorted(asyncio.run(imported())))
"""


def test_a_first_stream_imports_nothing() -> None:
    command = [sys.executable, "-c", _IMPORTED_BY_A_STREAM]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == []
