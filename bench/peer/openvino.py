"""OpenVINO GenAI, which reads the GGUF files that llama.cpp quantizes.

Its own clock is read: the time to the first token, and the mean time of each one after it.
"""

from pathlib import Path

import numpy as np
import openvino
import openvino_genai


class OpenVino:
    def __init__(self, file: Path, *, n_threads: int) -> None:
        self._pipeline = openvino_genai.LLMPipeline(
            file,
            "CPU",
            # The plain backend; the paged one is made for many sequences.
            ATTENTION_BACKEND="SDPA",
            INFERENCE_NUM_THREADS=n_threads,
            ENABLE_CPU_PINNING=True,
        )

    def prefill(self, prompt: list[int]) -> float:
        return float(self._generate(prompt, 1).perf_metrics.get_ttft().mean) / 1e3

    def decode(self, prompt: list[int], n_tokens: int) -> float:
        return float(self._generate(prompt, n_tokens + 1).perf_metrics.get_tpot().mean) / 1e3

    def greedy(self, prompt: list[int], n_tokens: int) -> list[int]:
        return list(self._generate(prompt, n_tokens).tokens[0])

    def _generate(self, prompt: list[int], n_tokens: int) -> openvino_genai.EncodedResults:
        settings = openvino_genai.GenerationConfig()
        settings.max_new_tokens = n_tokens
        settings.ignore_eos = True
        settings.do_sample = False
        ids = np.array([prompt], np.int64)
        inputs = openvino_genai.TokenizedInputs(
            openvino.Tensor(ids), openvino.Tensor(np.ones_like(ids))
        )
        return self._pipeline.generate(inputs, settings)
