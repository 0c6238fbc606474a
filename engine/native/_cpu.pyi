"""The native kernels, as csrc/bind.cpp and the bind_*.cpp next to it expose them. Addresses go in as
integers and nothing is checked. Use `engine.device.ops.Ops`.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Any

LAYOUT_VERSION: int
"""Changes with what panels hold for the same weights."""

def isa() -> str:
    """The instruction set whose kernels run."""

def supported_isas() -> list[str]:
    """Those that both this build and this processor have, best first."""

def select_isa(isa: str, /) -> bool:
    """For tests and benchmarks: use another one from now on. False if it is not supported."""

def address(array: object, /) -> int:
    """Where the memory of an array of numpy begins, whatever its strides."""

def uniform(seed: int, position: int, *, purpose: int = 0, attempt: int = 0) -> float:
    """What `random_numbers.uniform` says; `seed` and `position` of 64 bits, the others of 32."""

class Sampler:
    """What all tokens of a request have in common, and memory for them; one call at a time."""

    def __init__(self, vocab_size: int, request: object, /) -> None:
        """`request`: a `sample.SampleRequest`, whose arrays are copied; those of `sample` are not
        looked at.
        """

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
        """The fields of a `sample.SampleResult`, its trace as (code, n_removed, removed_argmax).

        None for an array of another type, size or layout than that says, and where the reference
        raises. The GIL is released.
        """

    def score(self, logits: object, token_id: int) -> tuple[Any, ...] | None:
        """The fields of a `sample.SampleResult` for a token that was not drawn. None as above."""

def set_threads(count: int, processors: Sequence[int] = ()) -> None:
    """Tapes run on so many threads from their next run on, the caller's included.

    `processors` (count - 1,) or empty: where each of the others is to keep to.
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
    """Weights into panels, on all threads. `rows`: int64 addresses of the rows of weights, 16 per
    panel, 0 for a row of zeros. Returns row and column of the first weight that is not finite; row
    -1: all are.
    """

def checksum(bytes: int, n_bytes: int) -> int:
    """64 bits over memory, on all threads: other memory, another number."""

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
    """Recorded ops; the arguments stand in csrc/ops.h. Not to be appended to while it runs."""

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
        """For benchmarks: `n_words` of uint64. `sums`: one for each piece of them."""

    def run(self, state: int) -> bool:
        """All ops. False when the state's abort word was set before the last of their work began.

        Raises RuntimeError when another tape runs in this process.
        """

    def profile(self, state: int) -> list[int]:
        """Runs; the nanoseconds of each op."""

    def names(self) -> list[str]: ...
    def __len__(self) -> int: ...

class NgramIndex:
    """What `ngram_ref.NgramIndex` says."""

    def __init__(self, recent_bytes: int) -> None: ...
    def begin(self, tokens: Sequence[int], /) -> None: ...
    def append(self, token: int, /) -> None: ...
    def rollback(self, size: int, /) -> None: ...
    def find(self, n: int, /) -> tuple[int, tuple[int, ...]]: ...
    def keep(self, n_prompt: int, /) -> None: ...
    def recent_size(self) -> int: ...
    def recent_bytes(self) -> int: ...
    def __len__(self) -> int: ...
