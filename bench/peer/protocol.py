"""What is measured, and which programs take part. Imports none of their packages."""

from dataclasses import dataclass
from typing import Protocol


class Peer(Protocol):
    """A loaded model. Prompts are token ids; each call begins a new sequence."""

    def prefill(self, prompt: list[int]) -> float:
        """Seconds up to the logits, or the first token, after the prompt."""
        ...

    def decode(self, prompt: list[int], n_tokens: int) -> float:
        """Seconds per token after the first one, over `n_tokens` of a greedy sequence."""
        ...

    def greedy(self, prompt: list[int], n_tokens: int) -> list[int]:
        """The most probable continuation."""
        ...


@dataclass(frozen=True, slots=True)
class Contestant:
    """A program with weights in one of its formats; programs with equal `bits` are compared."""

    peer: str
    format: str
    bits: int
    packages: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.peer} {self.format}"


@dataclass(frozen=True, slots=True)
class Measure:
    """Tokens per second of one measurement; `n_tokens` 0 means the prompt itself."""

    name: str
    prompt_tokens: int
    n_tokens: int


SOLITON = "soliton"
_GGUF = ("llama_cpp", "gguf")
_ONNX = ("onnxruntime_genai", "onnx", "onnx_ir", "transformers")
REFERENCE = Contestant(SOLITON, "none", 16)
CONTESTANTS = (
    REFERENCE,
    Contestant("llama.cpp", "BF16", 16, _GGUF),
    Contestant(SOLITON, "8bit", 8),
    Contestant("llama.cpp", "Q8_0", 8, _GGUF),
    Contestant("openvino", "Q8_0", 8, ("openvino_genai", *_GGUF)),
    Contestant(SOLITON, "4bit", 4),
    Contestant("llama.cpp", "Q4_0", 4, _GGUF),
    Contestant("llama.cpp", "Q4_K_M", 4, _GGUF),
    Contestant("openvino", "Q4_0", 4, ("openvino_genai", *_GGUF)),
    Contestant("onnxruntime", "int4", 4, _ONNX),
)
# On a GGUF file as it is; how many bits it has, only the file knows.
OF_FILE = (Contestant(SOLITON, "none", 0), Contestant("llama-bench", "none", 0))
MEASURES = (
    Measure("decode", 16, 128),
    Measure("decode_2048", 2048, 64),
    Measure("prefill_512", 512, 0),
)
