"""A server that is stopped and started again while its clients go on.

Owns the process of the moment, and who may act on a stream: nobody while it is replaced, so that
every client knows what has been done. Readers are cut off wherever they are.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from server.kept.kept import SHUT_DOWN

from .server import Options
from .site import Site, ready_port, spawn
from .wire import Reply, ask

_EXIT_S = 40
_LOOK_S = 0.005


class Restarts:
    """Used on the event loop."""

    def __init__(self, options: Options, site: Site | None = None) -> None:
        """`site`: the first server; None starts one."""
        self._options = options
        self._n_acting = 0
        self._is_up = asyncio.Event()
        self._is_up.set()
        self.n = 0
        self.site = site or self._started()

    @property
    def port(self) -> int:
        return self.site.port

    async def up(self) -> int:
        """Wait until there is a server. Returns how many there were before it."""
        await self._is_up.wait()
        return self.n

    @asynccontextmanager
    async def acting(self) -> AsyncIterator[None]:
        """No restart meanwhile."""
        await self._is_up.wait()
        self._n_acting += 1
        try:
            yield
        finally:
            self._n_acting -= 1

    async def restart(self) -> list[Reply]:
        """By SIGTERM. What the server paused is resumed. Returns the answers that were not 200."""
        self._is_up.clear()
        while self._n_acting:
            await asyncio.sleep(_LOOK_S)
        self.n += 1
        await asyncio.to_thread(self.close)
        self.site = await asyncio.to_thread(self._started)
        replies = await self._resume()
        self._is_up.set()
        return [reply for reply in replies if reply.status != 200]

    async def _resume(self) -> list[Reply]:
        paused, after = list[str](), ""
        while True:
            page = await self.site.get(f"/v1/streams?limit=100{after}")
            paused += [
                each["id"]
                for each in page["data"]
                if (each["state"], each["reason"]) == ("paused", SHUT_DOWN)
            ]
            if not page["has_more"]:
                break
            after = f"&after={page['last_id']}"
        paths = [f"/v1/streams/{id_}/control" for id_ in paused]
        return await asyncio.gather(*(ask(self.port, path, {"action": "resume"}) for path in paths))

    def _started(self) -> Site:
        process = spawn(self._options)
        return Site(ready_port(process), process)

    def close(self) -> None:
        """Stop the server. Raises subprocess.TimeoutExpired if it does not end."""
        process = self.site.process
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(_EXIT_S)
        finally:
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()
        assert code == 0, f"exit code {code}"


@contextmanager
def kept_options(options: Options) -> Iterator[Options]:
    """The same with a directory for kept streams."""
    with TemporaryDirectory() as directory:
        flags = {**options.flags, "keep-streams-dir": str(Path(directory) / "kept")}
        yield replace(options, flags=flags)
