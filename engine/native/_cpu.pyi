"""The native kernels, as csrc/bind.cpp and the bind_*.cpp next to it expose them. Addresses go in
as integers and nothing is checked. Use `engine.device.ops.Ops`.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Any

LAYOUT_VERSION: int
"""Increases whenever panels of the same weights have other bytes."""

RELEASE: str

def isa() -> str:
    """The instruction set whose kernels are in use."""

def supported_isas() -> list[str]:
    """The instruction sets that both this build and this processor support, best first."""

def select_isa(isa: str, /) -> bool:
    """For tests and benchmarks: uses another one from now on. False if it is not supported."""

def address(array: object, /) -> int:
    """The address of a numpy array's first element; the array may have any strides."""

def uniform(seed: int, position: int, *, purpose: int = 0, attempt: int = 0) -> float:
    """The same as `random_numbers.uniform`. `seed` and `position` have 64 bits, the others 32."""

class Sampler:
    """The sampler of one request, with its settings and memory; one call at a time."""

    def __init__(self, vocab_size: int, request: object, /) -> None:
        """`request` is a `sampling.request.SampleRequest`. Its settings are copied; the fields that
        differ from token to token are arguments of `sample`.
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
        """The fields of a `sampling.request.SampleResult`, with its trace as
        (code, n_removed, removed_argmax).

        None if an array has the wrong type, size or layout, and where the reference raises.
        Releases the GIL.
        """

    def score(self, logits: object, token_id: int) -> tuple[Any, ...] | None:
        """The fields of a `SampleResult` for a token that was not drawn. None as above."""

def set_threads(count: int, processors: Sequence[int] = ()) -> None:
    """From the next run on, tapes use `count` threads, including the caller.

    `processors` (count - 1,) pins each of the other threads to a processor; empty pins none.
    """

def threads() -> int: ...

class Layout(Enum):
    F32 = ...
    BF16 = ...
    Q8 = ...
    Q6 = ...
    Q5 = ...
    Q4 = ...
    Q4_0 = ...
    Q5_0 = ...
    Q2_K = ...
    Q4_K = ...
    Q5_K = ...
    Q6_K = ...
    IQ4_NL = ...
    IQ4_XS = ...
    MXFP4 = ...

class SourceType(Enum):
    F32 = ...
    F16 = ...
    BF16 = ...
    Q4_0 = ...
    Q4_1 = ...
    Q5_0 = ...
    Q5_1 = ...
    Q8_0 = ...
    Q2_K = ...
    Q3_K = ...
    Q4_K = ...
    Q5_K = ...
    Q6_K = ...
    IQ4_NL = ...
    IQ4_XS = ...
    MXFP4 = ...

def pack(
    *,
    rows: int,
    source: SourceType,
    n_in: int,
    layout: Layout,
    is_woven: bool,
    panels: int,
    n_panels: int,
    begin_panel: int,
    end_panel: int,
    importance: int,
) -> tuple[int, int]:
    """Packs weights into panels, on all threads. `rows` is the address of an int64 array: the
    addresses of the rows of weights, 16 per panel, 0 for a row of zeros. Blocks of a GGUF type are
    moved as they are into the layout that holds them. Returns row and column of the first weight
    that is not finite, or of the first one of its block; row -1 means that all are finite.
    """

def checksum(bytes: int, n_bytes: int) -> int:
    """A 64-bit checksum of memory, on all threads: detects changes, is not cryptographic."""

FILE_ENDS: int

def read(file: int, begin: int, bytes: int, n_bytes: int) -> tuple[int, int]:
    """Reads from the position `begin` of a file, given by its descriptor, into memory, on all
    threads. Returns an errno, which is 0 for none and FILE_ENDS for a file with fewer bytes, and
    the checksum of what was read.
    """

def touch(rows: int, n_rows: int, pitch: int, n_bytes: int) -> None:
    """Has the system give its pages to the first bytes of rows of memory `pitch` bytes apart, and
    changes nothing in them, if the system can do that.
    """

class Epilogue(Enum):
    NONE = ...
    SILU_GATE = ...
    CLAMPED_GATE = ...
    GELU_GATE = ...
    GELU_TANH_GATE = ...
    GELU = ...
    GELU_TANH = ...
    RELU2 = ...
    SOFTCAP = ...
    XIELU = ...

class Xielu:
    """Struct Xielu in csrc/ops.h."""

    def __init__(self, *, positive: float, negative: float, beta: float, eps: float) -> None: ...

class Norm:
    """Struct Norm in csrc/ops.h."""

    def __init__(self, *, weight: int, bias: int, eps: float, is_centered: bool) -> None: ...

class KvType(Enum):
    F32 = ...
    BF16 = ...
    INT8 = ...
    INT4 = ...

class Matrix:
    """Struct Matrix in csrc/ops.h."""

    def __init__(
        self,
        *,
        panels: int,
        n_out: int,
        n_in: int,
        layout: Layout,
        is_woven: bool,
        is_fetched: bool = False,
    ) -> None: ...

def linear_scratch_bytes(sections: Sequence[Matrix], max_rows: int) -> int: ...
def attention_scratch_floats(n_heads: int, head_dim: int, max_seq_len: int) -> int: ...

class Attention:
    """The arguments of an op; csrc/ops.h describes them."""

    def __init__(
        self,
        *,
        qkv: int,
        k_cache: int,
        v_cache: int,
        k_scales: int,
        v_scales: int,
        k_type: KvType,
        v_type: KvType,
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
        softcap: float = 0.0,
        sinks: int = 0,
        stores: bool = True,
        common_keys: int = 0,
    ) -> None: ...

class Scoring(Enum):
    SOFTMAX = ...
    SIGMOID = ...
    CHOSEN_SOFTMAX = ...
    SPARSE_MIXER = ...

class Routing:
    def __init__(
        self,
        *,
        n_experts: int,
        n_used: int,
        scoring: Scoring,
        selection_bias: int,
        expert_scales: int,
        n_groups: int,
        n_groups_used: int,
        group_best: int,
        is_renormalized: bool,
        scale: float,
        spread: float,
    ) -> None: ...

class ExpertBank:
    def __init__(
        self,
        *,
        gate: Matrix,
        up: Matrix,
        down: Matrix,
        gates: int,
        ups: int,
        downs: int,
        gate_up_bias: int,
        down_bias: int,
        hidden: int,
    ) -> None: ...

class Experts:
    def __init__(
        self,
        *,
        x: int,
        norm: Norm,
        router: int,
        router_width: int,
        routing: Routing,
        routed: ExpertBank,
        shared: ExpertBank,
        has_shared_gate: bool,
        epilogue: Epilogue,
        residual: int,
        scale: float,
        out: int,
        dim: int,
        max_rows: int,
    ) -> None: ...
    def scratch_bytes(self) -> int: ...

def append_experts(tape: Tape, args: Experts, *, scratch: int) -> None: ...

class States:
    def __init__(
        self, *, slots: int, n_state: int, log: int, n_row: int, n_logged: int, words: int
    ) -> None: ...

MOST_CONV_ROWS: int
MOST_SAVES: int

def append_short_conv(
    tape: Tape, *, x: int, states: States, conv: int, bias: int, kernel: int, dim: int, out: int
) -> None: ...
def append_delta_net(
    tape: Tape,
    *,
    x: int,
    states: States,
    conv: int,
    kernel: int,
    n_k_heads: int,
    n_v_heads: int,
    k_dim: int,
    v_dim: int,
    takes_turns: bool,
    a_log: int,
    is_rate: bool,
    dt_bias: int,
    norm: int,
    eps: float,
    out: int,
) -> None: ...
def append_mamba2(
    tape: Tape,
    *,
    x: int,
    states: States,
    conv: int,
    conv_bias: int,
    kernel: int,
    n_heads: int,
    n_groups: int,
    head_dim: int,
    state_dim: int,
    chunk_heads: int,
    a_log: int,
    is_rate: bool,
    dt_bias: int,
    dt_scale: float,
    dt_min: float,
    dt_max: float,
    skip: int,
    out: int,
) -> None: ...
def append_gated_norm(
    tape: Tape,
    *,
    x: int,
    gate: int,
    pitch: int,
    gate_scale: float,
    norm: int,
    width: int,
    n_groups: int,
    is_gate_first: bool,
    eps: float,
) -> None: ...
def append_gate(tape: Tape, *, x: int, gate: int, width: int) -> None: ...

class Tape:
    """Recorded ops; csrc/ops.h describes the arguments. Do not append while it runs. A matrix has 1
    to 4 sections; ValueError for another number.
    """

    def __init__(self) -> None: ...
    def embed(self, *, table: Matrix, out: int, scale: float = 1.0, positions: int = 0) -> None: ...
    def norm_linear(
        self,
        *,
        residual: int,
        norm: int,
        eps: float,
        sections: Sequence[Matrix],
        bias: int,
        out: int,
        epilogue: Epilogue,
        scratch: int,
        norm_bias: int = 0,
        is_centered: bool = False,
        scale: float = 1.0,
        softcap: float = 0.0,
        xielu: Xielu = ...,
    ) -> None: ...
    def linear(
        self,
        *,
        x: int,
        sections: Sequence[Matrix],
        bias: int,
        residual: int,
        out: int,
        scratch: int,
        scale: float = 1.0,
    ) -> None: ...
    def add_norm(
        self,
        *,
        x: int,
        norm: Norm,
        residual: int,
        scale: float,
        factor: int,
        out: int,
        dim: int,
        n_parts: int,
    ) -> None: ...
    def times(self, *, x: int, others: int, dim: int, pitch: int) -> None: ...
    def heads(
        self,
        *,
        qkv: int,
        n_heads: int,
        n_kv_heads: int,
        head_dim: int,
        q_norm: Norm,
        k_norm: Norm,
        v_norm: Norm,
        has_keys: bool,
        over_all: bool,
        cos: int,
        sin: int,
        rotary_half: int,
        q_scales: int,
    ) -> None: ...
    def attention(self, args: Attention) -> None: ...
    def branch_attention(
        self,
        args: Attention,
        *,
        fork: int,
        rows: int,
        k_tails: int,
        v_tails: int,
        k_tail_scales: int,
        v_tail_scales: int,
        tail_len: int,
    ) -> None: ...
    def read(self, *, words: int, n_words: int, piece_words: int, sums: int) -> None:
        """For benchmarks: reads `n_words` uint64. `sums` has one for each piece of them."""

    def run(self, state: int) -> bool:
        """Runs all ops. False if the state's abort word was set before the last work began.

        Raises RuntimeError if another thread of this process is running native ops.
        """

    def run_and_guess(self, state: int, logits: int, n: int) -> bool:
        """Like `run`, for one row, whose `n` logits it writes. The other threads begin the pass of
        the likeliest token at the next position, but for its last op, which overwrites them: that
        waits for `begin` or `run`.
        """

    def begin(self, state: int) -> None:
        """Lets the other threads begin what `run` will most likely be called for next. `run` goes
        on with it if the state is the same, and no other tape has been run or begun since.
        """

    @staticmethod
    def drop_begun() -> None:
        """Drops what a tape of this process has begun and not run: when this returns, nothing reads
        or writes its memory.
        """

    def profile(self, state: int) -> list[int]:
        """Runs all ops; returns the nanoseconds of each."""

    def names(self) -> list[str]: ...
    def __len__(self) -> int: ...

class NgramIndex:
    """The same as `draft.ngram_reference.NgramIndex`."""

    def __init__(self, recent_bytes: int) -> None: ...
    def begin(self, tokens: Sequence[int], /) -> None: ...
    def extend(self, tokens: Sequence[int], /) -> None: ...
    def rollback(self, size: int, /) -> None: ...
    def find(
        self, n: int, tokens: Sequence[int] = ...
    ) -> tuple[int, bool, tuple[int, ...]] | None: ...
    def keep(self, n_prompt: int, /) -> None: ...
    def recent_size(self) -> int: ...
    def recent_bytes(self) -> int: ...
    def __len__(self) -> int: ...
