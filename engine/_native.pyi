"""The native kernels, as csrc/bind.cpp exposes them: addresses in as integers, nothing is checked.
Use `ops.Ops`.
"""

from enum import Enum

OK: int
BAD_LOGITS: int
BAD_ADJUSTED: int
BAD_ID: int

def isa() -> str:
    """The instruction set whose kernels run."""

def supported_isas() -> list[str]:
    """Those that both this build and this processor have, best first."""

def select_isa(isa: str, /) -> bool:
    """For tests and benchmarks: use another one from now on. False if it is not supported."""

def sample(
    logits: int,
    work: int,
    vocab_size: int,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    u: float,
    repetition_penalty: float,
    repetition_ids: int,
    n_repetition_ids: int,
    delta_ids: int,
    deltas: int,
    n_deltas: int,
    n_top: int,
    /,
) -> tuple[int, int, float, float, float, list[int], list[float], list[float]]: ...
def set_threads(count: int, pinned: bool = False) -> None:
    """Tapes run on so many threads from their next run on, the caller's included.

    `pinned`: each of the others keeps to one processor.
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
    """Weights into panels. `rows`: int64 addresses of the rows of weights, 16 per panel, 0 for a
    row of zeros. Returns row and column of the first weight that is not finite; row -1: all are.
    """

class TableKind(Enum):
    F32_ROWS = ...
    BF16_ROWS = ...
    PANELS = ...

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
    def embed(
        self, *, table: int, kind: TableKind, vocab_size: int, dim: int, layout: Layout, out: int
    ) -> None: ...
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
        last_rows: int,
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
    def run(self, state: int) -> int:
        """How many ops ran: fewer than all when the state's abort word was set before one of them.

        Raises RuntimeError when another tape runs in this process.
        """

    def profile(self, state: int) -> list[int]:
        """Runs; the nanoseconds of each op that ran."""

    def names(self) -> list[str]: ...
    def __len__(self) -> int: ...
