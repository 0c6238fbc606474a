"""The native kernels, as csrc/bind.cpp exposes them: addresses are integers, nothing is checked.
Use `ops.Ops`.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Any

LAYOUT_VERSION: int
"""Changes whenever the same weights give other panels."""

def isa() -> str:
    """The instruction set of the kernels in use."""

def supported_isas() -> list[str]:
    """The instruction sets that both this build and this processor have, best first."""

def select_isa(isa: str, /) -> bool:
    """For tests and benchmarks: switch to another one. False if it is not supported."""

def address(array: object, /) -> int:
    """The address of a numpy array's memory, whatever its strides."""

def uniform(seed: int, position: int, *, purpose: int = 0, attempt: int = 0) -> float:
    """As `random_numbers.uniform`; `seed` and `position` have 64 bits, the others 32."""

class Sampler:
    """What all tokens of a request have in common, and scratch memory; one call at a time."""

    def __init__(self, vocab_size: int, request: object, /) -> None:
        """`request`: a `SampleRequest`. Its arrays are copied, except those that `sample` takes."""

    def sample(
        self,
        logits: object,
        work: object,
        u: float,
        u_xtc: float,
        context: object,
        mask: object | None,
        banned_ids: object,
        mirostat_mu: float,
    ) -> tuple[Any, ...] | None:
        """The fields of a `SampleResult`, its trace as (code, n_removed, removed_argmax).

        None for an array of the wrong type, size or layout, and if the reference would raise.
        Releases the GIL.
        """

    def score(self, logits: object, token_id: int) -> tuple[Any, ...] | None:
        """The fields of a `SampleResult` for a token that was not drawn. None as above."""

def set_threads(count: int, processors: Sequence[int] = ()) -> None:
    """Tapes use this many threads from their next run on, the caller's included.

    `processors` (count - 1,) or empty: the processor of each of the other threads.
    """

def threads() -> int: ...

class Layout(Enum):
    F32 = ...
    BF16 = ...
    Q8 = ...
    Q4 = ...

class SourceType(Enum):
    F32 = ...
    F16 = ...
    BF16 = ...

def pack(
    *,
    rows: int,
    source: SourceType,
    n_in: int,
    layout: Layout,
    panels: int,
    begin_panel: int,
    end_panel: int,
) -> tuple[int, int]:
    """Packs weights into panels, on all threads. `rows`: int64 addresses of the rows of weights, 16
    per panel, 0 for a row of zeros. Returns row and column of the first weight that is not finite;
    row -1 if all are finite.
    """

def checksum(bytes: int, n_bytes: int) -> int:
    """A 64-bit checksum of memory, on all threads."""

class Epilogue(Enum):
    NONE = ...
    SILU_GATE = ...

class KvType(Enum):
    F32 = ...
    BF16 = ...
    INT8 = ...

def linear_scratch_bytes(n_in: int, max_rows: int) -> int: ...
def attention_scratch_floats(n_heads: int, head_dim: int, max_seq_len: int) -> int: ...

class Tape:
    """Recorded ops; csrc/ops.h has the arguments. Must not be extended while it runs."""

    def __init__(self) -> None: ...
    def embed(self, *, panels: int, n_out: int, n_in: int, layout: Layout, out: int) -> None: ...
    def norm_linear(
        self,
        *,
        residual_in: int,
        branch: int,
        residual_out: int,
        norm: int,
        eps: float,
        panels: int,
        n_out: int,
        n_in: int,
        layout: Layout,
        bias: int,
        out: int,
        epilogue: Epilogue,
        scratch: int,
    ) -> None: ...
    def linear(
        self,
        *,
        x: int,
        panels: int,
        n_out: int,
        n_in: int,
        layout: Layout,
        bias: int,
        out: int,
        scratch: int,
    ) -> None: ...
    def attention(
        self,
        *,
        qkv: int,
        k_cache: int,
        v_cache: int,
        k_scales: int,
        v_scales: int,
        kv: KvType,
        n_heads: int,
        n_kv_heads: int,
        head_dim: int,
        max_seq_len: int,
        q_norm: int,
        k_norm: int,
        eps: float,
        cos: int,
        sin: int,
        rotary_half: int,
        window: int,
        scale: float,
        scratch: int,
        out: int,
    ) -> None: ...
    def read(self, *, words: int, n_words: int, piece_words: int, sums: int) -> None:
        """For benchmarks: reads `n_words` uint64. `sums`: one per piece of them."""

    def run(self, state: int) -> bool:
        """Runs all ops. False if the state's abort word was set before their last work began.

        Raises RuntimeError if another tape runs in this process.
        """

    def profile(self, state: int) -> list[int]:
        """Runs all ops. Returns the nanoseconds of each."""

    def names(self) -> list[str]: ...
    def __len__(self) -> int: ...

class NgramIndex:
    """As `ngram_reference.NgramIndex`."""

    def __init__(self, recent_bytes: int) -> None: ...
    def begin(self, tokens: Sequence[int], /) -> None: ...
    def append(self, token: int, /) -> None: ...
    def rollback(self, size: int, /) -> None: ...
    def find(self, n: int, /) -> tuple[int, tuple[int, ...]]: ...
    def keep(self, n_prompt: int, /) -> None: ...
    def recent_size(self) -> int: ...
    def recent_bytes(self) -> int: ...
    def __len__(self) -> int: ...
