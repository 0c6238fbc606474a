"""Gemma 3 270M, a real model in Q4_K_M, against llama.cpp on the same file.

`make test-gemma` fetches the file and runs this; without it the tests are skipped. Gemma's terms
forbid passing on what belongs to the model, so llama.cpp writes its texts anew each time.
LLAMA_CPP_BIN is the directory of its programs (scripts/gguf_greedy.py says how they are built).
"""

import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from engine import Engine
from engine.cache.kv import KVCache
from engine.sampling.logits import Logits
from scripts.gguf_greedy import IN_FLOAT32, OPENINGS, asked, running
from tests.engine.model.test_smollm2 import leads
from tests.support.chat_client import whole
from tests.support.live_server import live_server

pytestmark = [
    pytest.mark.skipif("GEMMA_GGUF" not in os.environ, reason="only `make test-gemma` has it"),
    pytest.mark.timeout(900),
]
ENGLISH = (Path(__file__).parents[3] / "docs" / "tutorial.md").read_text("utf-8")[:4096]
CHUNK = 256  # of llama-perplexity; it scores the second half of each
NEAR_TIE = 0.05  # as a difference of logits
NEAR_TIE_ROUNDED = 0.5  # both round activations to 8 bits, each in its own way: 0.29 measured
PERPLEXITY = 0.005
PROGRAMS = ("llama-server", "llama-quantize", "llama-perplexity")
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
)

Report = Callable[[str], None]


def gguf() -> Path:
    return Path(os.environ["GEMMA_GGUF"])


@pytest.fixture(scope="module")
def llama_cpp() -> Path:
    place = Path(os.environ.get("LLAMA_CPP_BIN", "."))
    missing = [each for each in PROGRAMS if not (place / each).is_file()]
    if missing:
        pytest.skip(f"LLAMA_CPP_BIN names no directory with llama.cpp's {', '.join(missing)}")
    return place.resolve()


@pytest.fixture(scope="module")
def as_stored() -> Engine:
    return Engine.load(gguf(), device="cpu")


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Report:
    """Shows a figure, also of a test that passes."""

    def show(line: str) -> None:
        with capsys.disabled():
            sys.stdout.write(f"\n{line}\n")

    return show


def test_greedy_tokens_are_llama_cpps_or_as_likely(
    llama_cpp: Path, as_stored: Engine, report: Report
) -> None:
    """Along the texts that llama.cpp writes, so the comparison goes on after a near tie."""
    report(compared(as_stored, llama_cpp / "llama-server", gguf(), NEAR_TIE_ROUNDED))


def test_in_float32_only_near_ties_differ(llama_cpp: Path, tmp_path: Path, report: Report) -> None:
    exact = tmp_path / "gemma.gguf"
    command: list[str | Path] = [
        llama_cpp / "llama-quantize",
        "--allow-requantize",
        gguf(),
        exact,
        "F32",
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    engine = Engine.load(gguf(), device="cpu", dtype="float32")
    report(compared(engine, llama_cpp / "llama-server", exact, NEAR_TIE, *IN_FLOAT32))


def compared(engine: Engine, server: Path, file: Path, tie: float, *options: str) -> str:
    """Both must choose the same tokens, unless each prefers its own by less than `tie`."""
    with running(server, file, *options) as url:
        texts = [asked(url, text, engine.tokenizer.encode(text)) for text in OPENINGS]
    parted = [lead for said in texts for lead in leads(engine, said)]
    n_tokens = sum(len(said["completion"]) for said in texts)
    widest = max(map(max, parted), default=0.0)
    assert n_tokens > 1000
    assert len(parted) < n_tokens / 20
    assert widest < tie
    return f"{n_tokens - len(parted)} of {n_tokens} tokens equal, widest lead {widest:.3f}"


def test_the_perplexity_of_english_is_llama_cpps(
    llama_cpp: Path, as_stored: Engine, tmp_path: Path, report: Report
) -> None:
    text = tmp_path / "english.txt"
    text.write_text(ENGLISH, "utf-8")
    command: list[str | Path] = [
        llama_cpp / "llama-perplexity",
        "-m",
        gguf(),
        "-f",
        text,
        "-c",
        str(CHUNK),
    ]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = re.search(r"Final estimate: PPL = ([\d.]+)", done.stdout + done.stderr)
    assert found, done.stderr[-1000:]
    ours = perplexity(as_stored, as_stored.tokenizer.encode(ENGLISH))
    report(f"perplexity {ours:.4f}, llama.cpp's {float(found[1]):.4f}")
    assert ours == pytest.approx(float(found[1]), rel=PERPLEXITY)


def perplexity(engine: Engine, token_ids: list[int]) -> float:
    """As llama-perplexity computes it: each chunk begins with <bos>, its second half is scored."""
    scores = [
        score
        for start in range(0, len(token_ids) - CHUNK + 1, CHUNK)
        for score in chunk_scores(engine, [token_ids[0], *token_ids[start + 1 : start + CHUNK]])
    ]
    return math.exp(-float(np.mean(scores)))


def chunk_scores(engine: Engine, token_ids: list[int]) -> Iterator[float]:
    """The log probability of each token of the second half but its first."""
    rows: list[Logits] = []
    cache = KVCache(engine.config, engine.model.ops, max_seq_len=CHUNK)
    engine.model.prefill(token_ids, cache, on_logits=lambda some: rows.append(some.copy()))
    logits = np.concatenate(rows).astype(np.float64)
    for place in range(CHUNK // 2, CHUNK - 1):
        row = logits[place]
        yield float(row[token_ids[place + 1]] - row.max() - np.log(np.exp(row - row.max()).sum()))


def test_a_chat_through_a_server(tmp_path: Path) -> None:
    """The model is not trained for chats, so its file has no template."""
    template = tmp_path / "gemma.jinja"
    template.write_text(TEMPLATE, "utf-8")
    messages = [
        {"role": "user", "content": "What is the capital of Italy?"},
        {"role": "assistant", "content": "Rome."},
        {"role": "user", "content": "What is the capital of France?"},
    ]
    engine = Engine.load(gguf(), device="cpu", chat_template=template)
    with live_server(engine) as server:
        body = {"model": engine.model_id, "messages": messages, "temperature": 0, "max_tokens": 8}
        answer = whole(server, body)
    assert "Paris" in answer["choices"][0]["message"]["content"]
