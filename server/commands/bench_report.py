"""What `soliton bench` prints about a model. Owns the order of the rows and their layout."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine import benchmark

# Label, key of the row, format of the value.
_LINES = (
    ("memory reads", "read_bandwidth_gbs", "{:.1f} GB/s"),
    ("reads of a step's size, cached", "read_bandwidth_gbs_same_size", "{:.1f} GB/s"),
    ("decode", "decode_tps", "{:,.1f} tok/s"),
    ("  share of memory reads", "bandwidth_fraction", "{:.0%}"),
    ("  with keys and values", "bandwidth_fraction_with_kv", "{:.0%}"),
    ("  without sampler and text", "pass_tps", "{:,.1f} tok/s"),
    ("decode at depth 2048", "decode_tps_2048", "{:,.1f} tok/s"),
    ("  more per token", "added_ms_2048", "{:.3f} ms"),
    ("prefill of 512 tokens", "prefill_tps_512", "{:,.0f} tok/s"),
    ("prefill of 2048 tokens", "prefill_tps_2048", "{:,.0f} tok/s"),
    ("first token after 1024, cold", "ttft_cold_ms", "{:.1f} ms"),
    ("first token after 1024, cached", "ttft_cached_ms", "{:.1f} ms"),
    ("copied text, n-gram drafts", "copy_tps", "{:,.1f} tok/s"),
    ("  times plain decoding", "copy_speedup", "{:.2f}"),
    ("random text, times plain", "undraftable_speedup", "{:.3f}"),
    ("own text, draft model, times plain", "draft_model_speedup", "{:.2f}"),
    ("  tokens per pass", "draft_model_tokens_per_pass", "{:.2f}"),
    ("server ready after", "startup_s", "{:.2f} s"),
    ("server's resident memory", "rss_mb", "{:.0f} MB"),
    ("over HTTP", "http_tps", "{:,.1f} tok/s"),
    ("  tokens per received block", "http_tokens_per_block", "{:.1f}"),
    ("  more per token", "http_added_us", "{:.0f} us"),
    ("over HTTP with 5 logprobs", "http_logprobs_tps", "{:,.1f} tok/s"),
    ("  more per token", "http_logprobs_added_us", "{:.0f} us"),
)
# A difference -> its lowest round. Not above 0, the difference is lost in the noise.
_LOWEST = {
    "added_ms_2048": "added_ms_2048",
    "http_added_us": "http_added_low_us",
    "http_logprobs_added_us": "http_logprobs_added_low_us",
}

Row = dict[str, Any]


def report(row: Row, why_missing: Mapping[str, str]) -> Iterator[str]:
    """The lines about one model in one format. `why_missing`: of figures that do not apply."""
    yield (
        f"{row['shape']}, quantize {row['quantize']}: {row['n_params']:,} parameters as "
        f"{row['format']}, {row['bytes_per_token'] / 1e6:.1f} MB per token, {row['ops']}, "
        f"{row['threads']} threads"
    )
    for label, key, layout in _LINES:
        if key in why_missing:
            yield f"  {label:<34} {'not measured':>15}: {why_missing[key]}"
        elif row[key] is not None:
            is_noise = key in _LOWEST and row[_LOWEST[key]] <= 0
            yield f"  {label:<34} {'within noise' if is_noise else layout.format(row[key]):>15}"


def print_profile(ops: "Sequence[benchmark.OpShare]", *, overlap: bool) -> None:
    """`overlap`: in a decode step, but not in its profile, each op begins beside the last one."""
    if not ops:
        print("  no profile: only native ops record their times")
        return
    total = sum(op.us for op in ops)
    alone = " one by one, which is longer than the step, where they overlap" if overlap else ""
    print(f"  the ops of a decode step take {total:.0f} us in all{alone}:")
    for op in ops:
        rate = f"{op.n_bytes / op.us / 1e3:.1f} GB/s" if op.n_bytes else ""
        print(
            f"    {op.count:>3} x {op.name:<32} {op.us:>9.1f} us {op.us / total:>6.1%} {rate:>12}"
        )
