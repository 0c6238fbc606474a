"""The native kernels, as csrc/bind.cpp exposes them: addresses in as integers, nothing is checked.
Use `ops.Ops`.
"""

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

def rms_norm(
    x: int, weight: int, out: int, rows: int, dim: int, eps: float, is_bfloat16: bool, /
) -> None: ...
def add_rms_norm(
    residual: int,
    x: int,
    weight: int,
    out: int,
    rows: int,
    dim: int,
    eps: float,
    is_bfloat16: bool,
    /,
) -> None: ...
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
