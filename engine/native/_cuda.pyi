"""The CUDA kernels, as csrc/cuda/bind.cpp and the bind_*.cpp next to it expose them. Addresses of
device memory go in as integers and nothing is checked.

An error that CUDA reports becomes a RuntimeError that names the op. Launches are asynchronous, so a
later call may report what a kernel does wrong. Ops and the sampler release the GIL while they
launch, copy and wait.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Any

MAX_ROWS: int
"""The most rows of a pass."""
MAX_HEAD_DIM: int
"""The largest head_dim that attention takes."""

state_bytes: int
"""The size of a StepState in device memory (csrc/cuda/ops.h): int64 pos, n_rows, 6 reserved,
MAX_ROWS token ids.
"""

def properties(device: int) -> dict[str, Any]:
    """`name`, and as integers `major`, `minor`, `n_multiprocessors`, `memory_bytes`, `l2_bytes`,
    `max_shared_bytes` of a block. RuntimeError if there is no such device, or no driver.
    """

def set_device(index: int) -> None:
    """The device on which this thread launches."""

def set_knobs(
    *,
    overlap: bool = True,
    prefetch_bytes: int = ...,
    attention_prefetch_bytes: int = ...,
    q4_blocks: int = 1,
) -> None:
    """Sets what changes the speed and no bit of a result: see csrc/cuda/knobs.h. What is left out
    gets its default. It holds for the process, from the next pass on; no pass may be launched
    meanwhile. Raises ValueError for a value that is not allowed.
    """

def knobs() -> dict[str, Any]:
    """The values that are set, by name."""

class Layout(Enum):
    """How a matrix lies in device memory: see csrc/cuda/layout.h."""

    BF16 = 0
    Q8 = 1
    Q4 = 2
    MXFP4 = 3

class Epilogue(Enum):
    """What becomes of a product: see csrc/epilogue.h."""

    NONE = 0
    SILU_GATE = 1
    GELU_GATE = 2
    GELU_TANH_GATE = 3
    CLAMPED_GATE = 4
    GELU = 5
    GELU_TANH = 6
    RELU2 = 7
    SOFTCAP = 8

class KvType(Enum):
    BF16 = 0
    INT8 = 1

def attention_scratch_bytes(n_heads: int, head_dim: int, max_seq_len: int) -> int:
    """The size of `scratch` of `Tape.attention`, which must be zeros before the first pass."""

def rope(
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
    pos: int,
    n_rows: int,
    queries: int,
    stream: int,
) -> None:
    """Prepares attention of a prompt's chunk: K and V into the caches, queries out. See
    csrc/cuda/attention.h.
    """

def unpack_kv(
    *,
    codes: int,
    scales: int,
    n_kv_heads: int,
    head_dim: int,
    max_seq_len: int,
    begin: int,
    end: int,
    out: int,
    stream: int,
) -> None:
    """Converts 8-bit keys or values to bfloat16: see csrc/cuda/attention.h."""

def unpack(
    *,
    weights: int,
    n_out: int,
    n_in: int,
    layout: Layout,
    gated: bool,
    begin: int,
    end: int,
    out: int,
    stream: int,
) -> None:
    """Rows of a quantised matrix into `out` bfloat16 (end - begin, n_in), rounded. `gated` means
    that the matrix has gate and up rows, each starting with a new panel.
    """

def rms_norm(
    *,
    residual: int,
    norm: int,
    eps: float,
    n_rows: int,
    dim: int,
    out: int,
    stream: int,
) -> None:
    """`out` bfloat16 (n_rows, dim) = RMSNorm of `residual` float32 (n_rows, dim), times `norm`
    float32 (dim,).
    """

def activate(*, x: int, n_rows: int, width: int, epilogue: Epilogue, out: int, stream: int) -> None:
    """`out` (n_rows, width) = the epilogue of x (n_rows, width), or gated of x (n_rows, 2 * width):
    gate, then up; all bfloat16.
    """

MAX_USED_EXPERTS: int
"""The most experts of a row."""
MAX_EXPERT_GROUPS: int
"""The most groups that experts come from."""

class Scoring(Enum):
    """What a router's numbers say: see csrc/ops.h."""

    SOFTMAX = 0
    SIGMOID = 1
    CHOSEN_SOFTMAX = 2
    SPARSE_MIXER = 3

class Routing:
    """Which experts a row goes through: see csrc/cuda/experts.h."""

class ExpertBank:
    """Experts of one shape."""

class SharedExpert:
    """What all rows go through."""

def routing(
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
) -> Routing: ...
def expert_bank(
    *,
    gate_ups: int,
    downs: int,
    gate_up_layout: Layout,
    down_layout: Layout,
    gate_up_bias: int,
    down_bias: int,
    hidden: int,
) -> ExpertBank:
    """`gate_ups`, `downs`: tables in device memory, of the addresses of each expert's weights."""

def shared_expert(
    *,
    gate_up: int,
    down: int,
    gate_up_layout: Layout,
    down_layout: Layout,
    gate_up_bias: int,
    down_bias: int,
    hidden: int,
    dim: int,
) -> SharedExpert: ...
def no_shared_expert() -> SharedExpert: ...
def experts_scratch_bytes(*, n_used: int, hidden: int, dim: int, shared_hidden: int) -> int:
    """The size of `scratch` of `Tape.experts`. `shared_hidden`: 0 without a shared expert."""

def route(
    *,
    router: int,
    router_width: int,
    routing: Routing,
    n_rows: int,
    experts: int,
    weights: int,
    stream: int,
) -> None:
    """The `experts` int32 and `weights` float32 (n_rows, n_used) that rows of a router's numbers
    choose, the best first.
    """

class Tape:
    """Recorded ops, launched in their order: see csrc/cuda/ops.h."""

    def __init__(self) -> None: ...
    def embed(
        self,
        *,
        weights: int,
        n_out: int,
        n_in: int,
        layout: Layout,
        out: int,
        scale: float = 1.0,
    ) -> None: ...
    def add_norm(
        self,
        *,
        x: int,
        norm: int,
        eps: float,
        residual: int,
        scale: float,
        factor: int,
        out: int,
        dim: int,
        width: int,
    ) -> None:
        """A tape of this op alone takes more than MAX_ROWS rows."""

    def experts(
        self,
        *,
        x: int,
        norm: int,
        eps: float,
        router: int,
        router_width: int,
        routing: Routing,
        routed: ExpertBank,
        shared: SharedExpert,
        has_shared_gate: bool,
        epilogue: Epilogue,
        residual: int,
        scale: float,
        out: int,
        dim: int,
        scratch: int,
    ) -> None: ...
    def norm_linear(
        self,
        *,
        residual: int,
        norm: int,
        eps: float,
        weights: int,
        n_out: int,
        n_in: int,
        layout: Layout,
        bias: int,
        out: int,
        epilogue: Epilogue,
        softcap: float = 0.0,
        scale: float = 1.0,
    ) -> None: ...
    def linear(
        self,
        *,
        x: int,
        weights: int,
        n_out: int,
        n_in: int,
        layout: Layout,
        bias: int,
        residual: int,
        out: int,
        scale: float = 1.0,
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
        softcap: float = 0.0,
        sinks: int = 0,
        scratch: int,
        out: int,
        next: Sequence[tuple[int, int]],
    ) -> None:
        """`next`: addresses and bytes of the weights that the next two ops read. A tape of this op
        alone takes more than MAX_ROWS rows.
        """

    def prepare(self, state: int, n_rows: int, max_length: int, stream: int) -> None:
        """Builds the graph of such passes, if there is none, and launches nothing. A pass with as
        many rows must have run before.
        """

    def run(self, state: int, n_rows: int, max_length: int, stream: int) -> None:
        """Launches the ops one after the other. `state` is the address of a StepState whose n_rows
        is `n_rows` and whose pos + n_rows is at most `max_length`; `stream` is torch's
        `cuda_stream`.
        """

    def replay(self, state: int, n_rows: int, max_length: int, stream: int) -> None:
        """The same in a single launch of a graph. The first call with the same state, n_rows and
        max_length launches op by op and builds the graph.
        """

    def profile(self, state: int, n_rows: int, max_length: int, stream: int) -> list[int]:
        """Runs the ops twice and waits; the nanoseconds on the device of each, in order."""

    def names(self) -> list[str]: ...
    def __len__(self) -> int: ...

LARGEST_VOCABULARY: int
"""The largest vocabulary of a Sampler."""

report_bytes: int
"""The size of a sampler's report, in host memory that the device can write."""

def sampler_bytes(vocab_size: int, max_context: int) -> int:
    """The size of a sampler's memory on the device."""

class Filter(Enum):
    TOP_K = 0
    TOP_P = 1
    MIN_P = 2

class Sampler:
    """Draws tokens from rows on the device, for one thread at a time and one stream: see
    csrc/cuda/device_sampler.h.
    """

    def __init__(
        self, vocab_size: int, max_context: int, memory: int, report: int, owners: object
    ) -> None:
        """`memory` (sampler_bytes,) on the device, `report` (report_bytes,) on the host. `owners`
        of both, and of whatever rows are copied to, are kept until the last kernel has ended.
        """

    def set(
        self,
        *,
        greedy: bool,
        temperature: float,
        filters: Sequence[tuple[Filter, bool, float]],
        n_top: int,
        n_prompt: int,
        repetition_penalty: float,
        frequency_penalty: float,
        presence_penalty: float,
        repetition_range: int,
        bias_ids: Sequence[int],
        bias_deltas: Sequence[float],
    ) -> None:
        """Sets what all tokens of a request have in common. `filters`: kind, whether it comes after
        the temperature, parameter.
        """

    def begin(
        self,
        logits: int,
        u: float,
        context: object,
        mask: object | None,
        banned_ids: object,
        state: int,
        stream: int,
    ) -> bool:
        """Launches the sampler. False, without a launch, if an array is not int32, an id is not in
        the vocabulary, or there are more ids than memory has room for.
        """

    def copy_logits(self, logits: int, host: int, stream: int) -> None:
        """Starts copying a row to the host."""

    def wait(self) -> None:
        """Waits for the last `begin` or `copy_logits`."""

    def result(self) -> tuple[Any, ...] | None:
        """Waits, then returns the fields of a `sampling.request.SampleResult`. None if nothing can
        be drawn from the row; a copy of it is then at the beginning of the sampler's memory.
        """
