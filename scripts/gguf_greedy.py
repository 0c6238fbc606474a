"""Makes smollm2_greedy*.json in tests/engine/model: what llama.cpp writes greedily with SmolLM2.

    python scripts/gguf_greedy.py LLAMA_SERVER LLAMA_QUANTIZE

For each prompt: its text, its ids, the ids that llama.cpp chooses (200, or fewer and the end), and
by how much the logit of each was larger than the second one. llama.cpp rounds activations to 8 bits
when it multiplies by quantised weights, so it also runs the same weights in float32, with keys and
values in float32: smollm2_greedy_float32.json has what it writes then. The programs come out of the
sources of llama.cpp (those in the sdist of llama-cpp-python, see gguf_pairs.py) with

    cmake -B build -DCMAKE_BUILD_TYPE=Release
    cmake --build build --target llama-server llama-quantize
"""

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from engine import Engine  # noqa: E402
from tests.support.smollm2 import smollm2  # noqa: E402

WRITTEN = ROOT / "tests" / "engine" / "model"
IN_FLOAT32 = ("-ctk", "f32", "-ctv", "f32", "-fa", "off")
N_TOKENS = 200
QUESTIONS = (
    "Write a long story about a lighthouse keeper who finds a message in a bottle.",
    "Explain in detail how a bicycle stays upright.",
    "Write a Python class for a bank account, with tests.",
    "List twenty ideas for a rainy afternoon, each with two sentences.",
    "Describe the history of the city of Rome in several paragraphs.",
    "What are the differences between mitosis and meiosis? Explain step by step.",
    "Write a letter to a friend about a journey through the mountains.",
    "Explain photosynthesis to a student, with all its stages.",
    "Write a dialogue between a cat and a dog who share a house.",
    "Give me a detailed recipe for vegetable soup, with every step.",
)
OPENINGS = (
    "Once upon a time, there was a little otter who lived by the river.",
    "The theory of evolution explains how",
    "def fibonacci(n):\n",
    "It was a dark night, and the wind",
    "The three most important inventions of the nineteenth century were",
    "In mathematics, a prime number is",
    "The ocean covers more than seventy percent of the Earth.",
    '{"name": "Ada", "age": 36, "languages": [',
    "# A short introduction to machine learning\n\n",
    "Q: Why is the sky blue?\nA:",
)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("server", type=Path, metavar="LLAMA_SERVER")
    parser.add_argument("quantize", type=Path, metavar="LLAMA_QUANTIZE")
    args = parser.parse_args(arguments)
    engine = Engine.load(smollm2(), device="cpu")
    chats = [[{"role": "user", "content": question}] for question in QUESTIONS]
    prompts = [(chat[0]["content"], engine.encode_chat(chat)) for chat in chats]
    prompts += [(text, engine.tokenizer.encode(text)) for text in OPENINGS]
    write("smollm2_greedy.json", prompts, args.server, smollm2())
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "smollm2.gguf"
        command = [args.quantize, "--allow-requantize", smollm2(), file, "F32"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        write("smollm2_greedy_float32.json", prompts, args.server, file, *IN_FLOAT32)


def write(
    name: str, prompts: Sequence[tuple[str, list[int]]], server: Path, file: Path, *options: str
) -> None:
    with running(server, file, *options) as url:
        lines = [json.dumps(asked(url, *prompt)) for prompt in prompts]
    (WRITTEN / name).write_text("[\n" + ",\n".join(lines) + "\n]\n", "utf-8")


@contextmanager
def running(server: Path, file: Path, *options: str) -> Iterator[str]:
    """The URL of a llama-server with that model, once it is ready."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [str(server), "-m", str(file), "-c", "1024", "-np", "1", "--port", str(port)]
    command += options
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not is_ready(url):
            assert process.poll() is None, "llama-server ended"
            time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait()


def is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health").status_code == 200
    except httpx.ConnectError:
        return False


def asked(url: str, text: str, prompt: list[int]) -> dict[str, Any]:
    """What it writes for a prompt; a text that ends early has the token of its end too."""
    body = {
        "prompt": prompt,
        "n_predict": N_TOKENS,
        "temperature": 0,
        "n_probs": 2,
        "cache_prompt": False,
    }
    answer = httpx.post(f"{url}/completion", json=body, timeout=600)
    answer.raise_for_status()
    steps = answer.json()["completion_probabilities"]
    for step in steps:
        assert step["id"] == step["top_logprobs"][0]["id"], "the likeliest token"
    return {
        "text": text,
        "prompt": prompt,
        "completion": [step["id"] for step in steps],
        "margins": [round(margin(step["top_logprobs"]), 4) for step in steps],
    }


def margin(likeliest: list[dict[str, Any]]) -> float:
    first, second = (float(each["logprob"]) for each in likeliest)
    return first - second


if __name__ == "__main__":
    main()
