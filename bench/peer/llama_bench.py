"""llama.cpp by its own llama-bench, a program on the PATH, for a GGUF file as it is.

Its own clock is read. It makes up its tokens, so only the length of a prompt counts.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path


class LlamaBench:
    def __init__(self, file: Path, *, n_threads: int) -> None:
        program = shutil.which("llama-bench")
        if program is None:
            sys.exit("llama-bench is not on the PATH")
        self._command = [program, "-m", str(file), "-t", str(n_threads), "-r", "1", "-o", "json"]

    def prefill(self, prompt: list[int]) -> float:
        return len(prompt) / self._rate(prompt=len(prompt), generated=0, depth=0)

    def decode(self, prompt: list[int], n_tokens: int) -> float:
        return 1 / self._rate(prompt=0, generated=n_tokens, depth=len(prompt))

    def greedy(self, prompt: list[int], n_tokens: int) -> list[int]:
        sys.exit("llama-bench prints no tokens")

    def _rate(self, *, prompt: int, generated: int, depth: int) -> float:
        """Tokens per second."""
        numbers = ["-p", str(prompt), "-n", str(generated), "-d", str(depth)]
        ended = subprocess.run([*self._command, *numbers], capture_output=True, text=True)
        if ended.returncode:
            ending = f"ended with exit code {ended.returncode}"  # negative: that signal killed it
            sys.exit(f"llama-bench: {(ended.stderr.strip().splitlines() or [ending])[-1]}")
        (result,) = json.loads(ended.stdout)
        return float(result["avg_ts"])
