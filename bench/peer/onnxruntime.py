"""onnxruntime-genai with 4-bit weights, as its own model builder makes them for CPUs."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime_genai

from bench.peer.files import written


def prepare(model: Path, format_: str) -> Path:
    """A directory for onnxruntime-genai; int4 in blocks of 32, multiplied as 8-bit integers."""
    return written(
        model.with_name(f"onnx-{format_}"), lambda target: _build(model, target, format_)
    )


def _build(model: Path, target: Path, format_: str) -> None:
    command = [sys.executable, "-m", "onnxruntime_genai.models.builder"]
    command += ["-i", str(model), "-o", str(target), "-p", format_, "-e", "cpu"]
    command += ["--extra_options", "int4_accuracy_level=4", "int4_block_size=32"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


class OnnxRuntime:
    def __init__(self, directory: Path, *, n_threads: int) -> None:
        config = onnxruntime_genai.Config(str(directory))
        session = {"intra_op_num_threads": n_threads}
        config.overlay(json.dumps({"model": {"decoder": {"session_options": session}}}))
        self._model = onnxruntime_genai.Model(config)

    def prefill(self, prompt: list[int]) -> float:
        generator = self._generator(len(prompt) + 1)
        start = time.perf_counter()
        generator.append_tokens(np.array(prompt, np.int32))
        generator.generate_next_token()
        return time.perf_counter() - start

    def decode(self, prompt: list[int], n_tokens: int) -> float:
        generator = self._generator(len(prompt) + n_tokens + 1)
        generator.append_tokens(np.array(prompt, np.int32))
        generator.generate_next_token()
        start = time.perf_counter()
        for _ in range(n_tokens):
            generator.generate_next_token()
        return (time.perf_counter() - start) / n_tokens

    def greedy(self, prompt: list[int], n_tokens: int) -> list[int]:
        generator = self._generator(len(prompt) + n_tokens)
        generator.append_tokens(np.array(prompt, np.int32))
        for _ in range(n_tokens):
            generator.generate_next_token()
        return list(generator.get_sequence(0)[len(prompt) :])

    def _generator(self, length: int) -> onnxruntime_genai.Generator:
        params = onnxruntime_genai.GeneratorParams(self._model)
        # Exactly this many: a stream must not stop at the stop token.
        params.set_search_options(max_length=length, min_length=length, do_sample=False)
        return onnxruntime_genai.Generator(self._model, params)
