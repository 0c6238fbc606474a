"""What many test files share: no network, the bundled model, a tiny random one, and the instruction
sets and threads of native code.
"""

import os

# Before any import of transformers: the tests build their oracles and download nothing.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

# Threads that wait for one another spin, and with two processes on the same processors most of the
# time would go to that. So each process of pytest-xdist keeps to its share of them, as do the
# programs that it starts. Before any import of torch, which counts processors.
if "PYTEST_XDIST_WORKER" in os.environ:
    _worker = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
    _n_workers = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    _processors = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(
        0, _processors[_worker % len(_processors) :: min(_n_workers, len(_processors))]
    )

import gc
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import settings

import engine.sampling.op
from engine import DEFAULT_MODEL, Engine
from engine.native import cpu as native
from engine.sampling.reference import op as sample_ref
from tests.support.fake_engine import FakeEngine
from tests.support.sample_requests import Sample

if TYPE_CHECKING:
    from tests.support.live_server import LiveServer

# How long an example takes depends on the machine.
settings.register_profile("soliton", deadline=None)
settings.load_profile("soliton")

_ISAS = [] if native.MISSING else native.kernels.supported_isas()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files whose tests may take longest come first: then `make test`, in which each process takes
    one file after another, does not end with one process at work on a single file.
    """
    longest: defaultdict[Path, float] = defaultdict(float)
    for item in items:
        for mark in item.iter_markers("timeout"):
            longest[item.path] = max(longest[item.path], mark.args[0])
    items.sort(key=lambda item: -longest[item.path])


def pytest_collection_finish() -> None:
    """What was collected and imported stays until the end: the garbage collector need not look at
    it again and again.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def bundled_engine() -> Engine:
    """Its generator keeps the state of the last test that used it; begin a stream of your own."""
    return Engine.load(DEFAULT_MODEL, device="cpu")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a random Llama with a byte-level tokenizer and a chat template; read only."""
    # Imported here, because the tests of native code also run without torch.
    from tests.support.tiny_models import save_model

    path = tmp_path_factory.mktemp("tiny") / "tiny-llama"
    save_model(path)
    return path


@pytest.fixture
def tiny_engine(tiny_model: Path) -> Engine:
    """A fresh engine on the tiny model: float32, CPU, an empty cache."""
    return Engine.load(tiny_model, device="cpu", dtype="float32")


@pytest.fixture
def fake() -> FakeEngine:
    """An engine whose model is a hash function; `fake_server` serves it."""
    return FakeEngine()


@pytest.fixture
def fake_server(fake: FakeEngine) -> "Iterator[LiveServer]":
    # Imported here, because the tests of the engine also run without the server's packages.
    from tests.support.live_server import live_server

    with live_server(fake.as_engine) as server:
        yield server


@pytest.fixture(scope="module")
def max_seq_len() -> int:
    """Of `shared_fake`; a file may choose another."""
    return 512


@pytest.fixture(scope="module")
def served(max_seq_len: int) -> "Iterator[tuple[FakeEngine, LiveServer]]":
    """A fake engine behind one server for a whole file."""
    from tests.support.live_server import live_server

    fake = FakeEngine(max_seq_len=max_seq_len)
    with live_server(fake.as_engine) as server:
        yield fake, server


@pytest.fixture
def shared_fake(served: "tuple[FakeEngine, LiveServer]") -> FakeEngine:
    """The engine of `shared_server`, as new."""
    served[0].renew()
    return served[0]


@pytest.fixture
def shared_server(
    served: "tuple[FakeEngine, LiveServer]", shared_fake: FakeEngine
) -> "Iterator[LiveServer]":
    """For tests that change the engine and not the server, which others of the file use too."""
    from tests.support.live_server import wait_until

    _, server = served
    yield server
    wait_until(lambda: not server.lease.busy and not server.lease.n_waiting)


@pytest.fixture(params=["numpy", *_ISAS])
def sample(request: pytest.FixtureRequest) -> Iterator[Sample]:
    """The sampler op: its definition, and the native code on each instruction set."""
    if request.param == "numpy":
        yield lambda logits, req: sample_ref.sample(logits, req, work=np.empty_like(logits))
        return
    best = native.kernels.isa()
    assert native.kernels.select_isa(request.param)
    yield lambda logits, req: engine.sampling.op.sample(logits, req, work=np.empty_like(logits))
    assert native.kernels.select_isa(best)


@pytest.fixture(params=_ISAS)
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    """Native code runs on each instruction set that this processor has."""
    best = native.kernels.isa()
    assert native.kernels.select_isa(request.param)
    yield request.param
    assert native.kernels.select_isa(best)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Native code runs on one thread, unless a test sets another number."""
    before = native.kernels.threads()
    native.kernels.set_threads(1)
    yield
    native.kernels.set_threads(before)
