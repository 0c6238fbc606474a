"""llama.cpp, through the C functions that llama-cpp-python exports.

Decoding is timed as llama.cpp's own llama-bench does it: passes only, nothing is sampled.
"""

import ctypes
import time
from pathlib import Path

import llama_cpp as llama
import numpy as np

from bench.peer.files import written

_CONTEXT = 4096
_FILE_TYPES = {
    "Q8_0": llama.LLAMA_FTYPE_MOSTLY_Q8_0,
    "Q4_0": llama.LLAMA_FTYPE_MOSTLY_Q4_0,
    "Q4_K_M": llama.LLAMA_FTYPE_MOSTLY_Q4_K_M,
}


def prepare(model: Path, format_: str) -> Path:
    """The GGUF file of `model` in `format_`, quantized by llama.cpp itself."""
    original = written(model.with_name("BF16.gguf"), lambda file: _convert(model, file))
    if format_ == "BF16":
        return original
    return written(
        model.with_name(f"{format_}.gguf"), lambda file: _quantize(original, file, format_)
    )


def _convert(model: Path, file: Path) -> None:
    # Imported here only: a measurement does not need torch, which takes seconds to import.
    from bench.peer.gguf_file import write_gguf

    write_gguf(model, file)


def _quantize(source: Path, target: Path, format_: str) -> None:
    params = llama.llama_model_quantize_default_params()
    params.ftype = _FILE_TYPES[format_]
    failed = llama.llama_model_quantize(bytes(source), bytes(target), ctypes.byref(params))
    if failed:
        raise RuntimeError(f"llama_model_quantize answered {failed}")


class LlamaCpp:
    def __init__(self, file: Path, *, n_threads: int) -> None:
        llama.llama_backend_init()
        model = llama.llama_model_load_from_file(bytes(file), llama.llama_model_default_params())
        if not model:
            raise RuntimeError(f"llama.cpp does not load {file.name}")
        params = llama.llama_context_default_params()
        params.n_ctx = _CONTEXT
        params.n_batch = _CONTEXT
        params.n_threads = params.n_threads_batch = n_threads
        self._context = llama.llama_init_from_model(model, params)
        self._memory = llama.llama_get_memory(self._context)
        self._n_vocab = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))

    def prefill(self, prompt: list[int]) -> float:
        llama.llama_memory_clear(self._memory, True)
        start = time.perf_counter()
        self._forward(prompt)
        return time.perf_counter() - start

    def decode(self, prompt: list[int], n_tokens: int) -> float:
        self.prefill(prompt)
        start = time.perf_counter()
        for _ in range(n_tokens):
            self._forward(prompt[:1])
        return (time.perf_counter() - start) / n_tokens

    def greedy(self, prompt: list[int], n_tokens: int) -> list[int]:
        self.prefill(prompt)
        token_ids = [self._best()]
        while len(token_ids) < n_tokens:
            self._forward(token_ids[-1:])
            token_ids.append(self._best())
        return token_ids

    def _forward(self, token_ids: list[int]) -> None:
        ids = (llama.llama_token * len(token_ids))(*token_ids)
        if failed := llama.llama_decode(
            self._context, llama.llama_batch_get_one(ids, len(token_ids))
        ):
            raise RuntimeError(f"llama_decode answered {failed}")
        llama.llama_synchronize(self._context)

    def _best(self) -> int:
        logits = llama.llama_get_logits_ith(self._context, -1)
        return int(np.ctypeslib.as_array(logits, (self._n_vocab,)).argmax())
