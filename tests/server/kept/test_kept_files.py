"""The directory of kept streams: what is written, who may read it, and what is left alone."""

import hashlib
import json
import logging
import os
import stat
import time
import zlib
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from server.app import create_app
from server.http.auth import owners
from server.kept.files import KeptDirectoryError
from server.settings import Settings
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer, live_server

BODY: dict[str, Any] = {"prompt": "x", "max_tokens": 8, "store": True}


@pytest.fixture
def fake() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "kept"


def files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.stream"))


def stored(fake: FakeEngine, directory: Path, n: int = 1, **fields: Any) -> list[str]:
    """The ids of streams that a server leaves behind, and their files in the same order."""
    with live_server(fake.as_engine, keep_streams_dir=directory) as server:
        return [server.post("/v1/completions", {**BODY, **fields}).json["id"] for _ in range(n)]


def statuses(server: LiveServer, ids: list[str], **headers: str) -> list[int]:
    return [server.get(f"/v1/streams/{id_}", **headers).status for id_ in ids]


def test_files_are_private_and_whole(fake: FakeEngine, directory: Path) -> None:
    stored(fake, directory, 3)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert len(files(directory)) == 3
    assert {stat.S_IMODE(file.stat().st_mode) for file in directory.iterdir()} == {0o600}
    assert not list(directory.glob("*.unfinished"))


def test_a_stream_belongs_to_its_key_over_restarts(fake: FakeEngine, directory: Path) -> None:
    keys = {name: {"authorization": f"Bearer {name}"} for name in ("key-one", "key-two")}
    one, two = keys.values()

    def serving(*api_keys: str) -> Any:
        return live_server(fake.as_engine, keep_streams_dir=directory, api_keys=api_keys)

    with serving(*keys) as server:
        ids = [server.post("/v1/completions", BODY, **key).json["id"] for key in (one, two)]
    with serving(*keys) as server:
        assert statuses(server, ids, **one) == [200, 404]
        assert statuses(server, ids, **two) == [404, 200]
    with serving("key-two") as server:
        assert statuses(server, ids, **two) == [404, 200], "though it is the only caller now"
    with serving() as server:
        assert statuses(server, ids) == [404, 404], "without keys nobody is one of them"
    with serving(*keys) as server:
        assert statuses(server, ids, **one) == [200, 404], "it was left alone"
    for file in directory.iterdir():
        assert b"key-one" not in file.name.encode() + file.read_bytes()


def test_an_owner_is_not_its_key() -> None:
    keys = [SecretStr("secret"), SecretStr("other")]
    both, alone = owners(keys), owners(keys[:1])
    assert set(alone.values()) < set(both.values())
    assert not any("secret" in owner for owner in both.values())


@pytest.mark.parametrize("what", ["cut", "flipped", "empty", "text", "newer", "renamed"])
def test_a_file_that_cannot_be_read_is_named_and_left(
    fake: FakeEngine, directory: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    ids = stored(fake, directory, 2)
    with live_server(fake.as_engine, keep_streams_dir=directory) as server:
        [first, _] = files(directory)
    data = first.read_bytes()
    spoilt = {
        "cut": data[:-5],
        "flipped": data[:-5] + bytes([data[-5] ^ 1]) + data[-4:],
        "empty": b"",
        "text": b"not a stream\n" * 9,
        "newer": data.replace(b"soliton kept stream 1\n", b"soliton kept stream 2\n"),
        "renamed": data,
    }[what]
    if what == "renamed":
        first = first.rename(first.with_stem("0" * 32))
    first.write_bytes(spoilt)
    caplog.clear()
    with live_server(fake.as_engine, keep_streams_dir=directory) as server:
        assert sorted(statuses(server, ids)) == [200, 404]
        assert server.post("/v1/completions", BODY).status == 200
    [line] = [record.message for record in caplog.records if "is not read" in record.message]
    assert str(first) in line
    assert first.read_bytes() == spoilt, "it is the user's"


@pytest.mark.parametrize("part", ["place", "steps"])
def test_a_file_that_somebody_forged_disturbs_nobody(
    fake: FakeEngine, directory: Path, part: str
) -> None:
    """Its digest is right, and its contents are not."""
    [id_] = stored(fake, directory)
    [file] = files(directory)
    data = bytearray(file.read_bytes())
    start = len(b"soliton kept stream 1\n") + 32
    head_end = start + 4 + int.from_bytes(data[start : start + 4], "little")
    sizes = json.loads(zlib.decompress(bytes(data[start + 4 : head_end])))["sizes"]
    index = {"place": 3, "steps": 4}[part]
    begin = head_end + sum(sizes[:index])
    data[begin + 30 : begin + sizes[index]] = bytes(sizes[index] - 30)
    data[start - 32 : start] = hashlib.sha256(data[start:]).digest()
    file.write_bytes(data)
    with live_server(fake.as_engine, keep_streams_dir=directory) as server:
        path = f"/v1/streams/{id_}"
        answer = server.post(f"{path}/branch", {}) if part == "place" else server.get(path)
        assert (answer.status, answer.error["code"]) == (409, "wrong_state")
        assert "damaged" in answer.error["message"]
        assert server.post("/v1/completions", BODY).status == 200
        assert server.request("DELETE", path).status == 200


def test_what_is_no_file_of_ours_stays(fake: FakeEngine, directory: Path) -> None:
    directory.mkdir()
    (directory / "notes.txt").write_text("mine")
    (directory / "folder.stream").mkdir()
    (directory / "link.stream").symlink_to("/etc/passwd")
    os.mkfifo(directory / "pipe.stream")
    (directory / "left.unfinished").write_bytes(b"half")
    [id_] = stored(fake, directory)
    with live_server(fake.as_engine, keep_streams_dir=directory) as server:
        assert statuses(server, [id_]) == [200]
    left = {file.name for file in directory.iterdir()}
    assert {"notes.txt", "folder.stream", "link.stream", "pipe.stream"} < left
    assert "left.unfinished" not in left


def test_a_stream_of_another_model_is_not_read(
    fake: FakeEngine, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ids = stored(fake, directory, 2)
    other = FakeEngine()
    other.fingerprint = "fp_other"
    with live_server(other.as_engine, keep_streams_dir=directory) as server:
        assert statuses(server, ids) == [404, 404]
        assert server.post(f"/v1/streams/{ids[0]}/branch", {}).status == 404
    [line] = [record.message for record in caplog.records if "not read" in record.message]
    assert "2 kept streams are of another model" in line
    with live_server(fake.as_engine, keep_streams_dir=directory) as server:
        assert statuses(server, ids) == [200, 200]


def test_time_counts_over_the_restart(fake: FakeEngine, directory: Path) -> None:
    ids = stored(fake, directory, 2)
    old, _ = files(directory)
    hour_ago = time.time() - 3601
    os.utime(old, (hour_ago, hour_ago))
    with live_server(fake.as_engine, keep_streams_dir=directory) as server:
        assert sorted(statuses(server, ids)) == [200, 404]
        assert not old.exists()
        [id_] = [id_ for id_ in ids if statuses(server, [id_]) == [200]]
        [file] = files(directory)
        late = time.time() - 3000
        os.utime(file, (late, late))
        assert statuses(server, [id_]) == [200]
    assert file.stat().st_mtime > late + 1000, "it was read"


def test_the_directory_is_bounded(fake: FakeEngine, directory: Path) -> None:
    stored(fake, directory)
    [file] = files(directory)
    foreign = [directory / f"{i:032}.stream" for i in range(3)]
    for i, path in enumerate(foreign):
        path.write_bytes(b"x" * 400_000)
        os.utime(path, (time.time() - 100 + i,) * 2)
    with live_server(fake.as_engine, keep_streams_dir=directory, keep_streams_mb=1) as server:
        assert not foreign[0].exists(), "the oldest of what is not ours"
        assert foreign[1].exists()
        body = {**BODY, "prompt": "x" * 200, "max_tokens": 300, "logprobs": 20}
        while file.exists() or foreign[2].exists():
            assert server.post("/v1/completions", body).status == 200
        n_listed = len(server.get("/v1/streams?limit=100").json["data"])
    assert not foreign[1].exists()
    assert len(files(directory)) == n_listed
    assert sum(path.stat().st_size for path in files(directory)) <= 1 << 20


def test_two_servers_do_not_share_a_directory(fake: FakeEngine, directory: Path) -> None:
    with (
        live_server(fake.as_engine, keep_streams_dir=directory),
        pytest.raises(KeptDirectoryError, match="another server"),
    ):
        create_app(Settings(keep_streams_dir=directory), fake.as_engine)


def test_a_directory_that_cannot_be_made_is_an_error(fake: FakeEngine, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(KeptDirectoryError, match="file"):
        create_app(Settings(keep_streams_dir=tmp_path / "file" / "kept"), fake.as_engine)


def test_a_full_disk_fails_no_stream(
    fake: FakeEngine,
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    caplog.set_level(logging.WARNING)
    with live_server(fake.as_engine, keep_streams_dir=directory) as server:
        monkeypatch.setattr(os, "fsync", full)
        ids = [server.post("/v1/completions", BODY).json["id"] for _ in range(3)]
        assert statuses(server, ids) == [200, 200, 200]
    assert [r.message for r in caplog.records if "No space left" in r.message]
    assert len([r for r in caplog.records if "No space left" in r.message]) == 1
    assert [*directory.iterdir()] == [directory / "lock"], "nothing half-written stays"
