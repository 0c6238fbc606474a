"""What `soliton doctor` finds, and what it advises. Prints nothing."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from engine import ModelDescription, benchmark, describe

from ..http.socket_options import affordable_connections
from ..settings import Settings, user_cache

_BUSY = 0.5  # processors that others use, from which a decode step waits for them
_FORMATS = ("8bit", "4bit")
_WORTH_IT = 1.2  # how many times fewer bytes another format must read to be advised
_LARGE_PAGES = "/sys/kernel/mm/transparent_hugepage/enabled"


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing that slows a server down, or keeps one from starting."""

    found: str
    do: str


@dataclass(frozen=True, slots=True)
class KeptWeights:
    """The directory for weights packed for this processor, from which the next start reads them."""

    directory: Path
    n_bytes: int  # that are there
    free_bytes: int  # of the disk
    is_writable: bool


@dataclass(frozen=True, slots=True)
class FormatFigures:
    """A model in a number format."""

    format: str
    memory_bytes: int  # weights, and the KV cache of `Findings.model.n_tokens`
    step_bytes: int  # of weights that are read for each token
    most_tokens: float | None  # a second: no decode is faster than reading these bytes


@dataclass(frozen=True, slots=True)
class ModelFigures:
    """What a model would need here."""

    name: str
    n_tokens: int  # the context that `memory_bytes` counts
    formats: tuple[FormatFigures, ...]  # the default one, then those that read clearly less


@dataclass(frozen=True, slots=True)
class Findings:
    """All that `soliton doctor` looks at."""

    machine: benchmark.Machine
    read_rates: dict[int, float]  # number of threads -> bytes per second; empty without kernels
    cache: KeptWeights | None
    n_connections: int  # that the limit on open files allows
    wanted_connections: int  # that a server allows by default
    model: ModelFigures | None


def examine(path: Path | None) -> Findings:
    """Looks at the machine, and at the headers of the model. Raises ModelLoadError."""
    description = None if path is None else describe(path)
    machine = benchmark.describe_machine()
    rates = {}
    for n_threads in sorted({1, machine.n_threads}):
        if (rate := benchmark.read_rate(machine, n_threads)) is not None:
            rates[n_threads] = rate
    wanted = Settings.model_fields["max_connections"].default
    fastest = max(rates.values(), default=None)
    return Findings(
        machine=machine,
        read_rates=rates,
        cache=_kept_weights(),
        n_connections=affordable_connections(wanted),
        wanted_connections=wanted,
        model=None if description is None else _model(description, fastest),
    )


def _kept_weights() -> KeptWeights | None:
    directory = user_cache()
    if directory is None:
        return None
    there = next(each for each in (directory, *directory.parents) if each.exists())
    files = (each for each in directory.rglob("*") if each.is_file())
    return KeptWeights(
        directory=directory,
        n_bytes=sum(each.stat().st_size for each in files),
        free_bytes=shutil.disk_usage(there).free,
        is_writable=os.access(there, os.W_OK),
    )


def _model(description: ModelDescription, rate: float | None) -> ModelFigures:
    n_tokens = min(description.config.usual_seq_len, 8192)
    default = description.default_format
    n_read = description.step_bytes(default)
    smaller = (each for each in _FORMATS if description.step_bytes(each) * _WORTH_IT < n_read)
    return ModelFigures(
        name=description.model_id,
        n_tokens=n_tokens,
        formats=tuple(
            FormatFigures(
                format=each,
                memory_bytes=description.memory_bytes(n_tokens, each),
                step_bytes=(n_bytes := description.step_bytes(each)),
                most_tokens=None if rate is None else rate / n_bytes,
            )
            for each in (default, *smaller)
        ),
    )


def advice(findings: Findings) -> list[Advice]:
    """What to do, the most important first."""
    return [*_of_kernels(findings), *_of_model(findings), *_of_system(findings)]


def _of_kernels(findings: Findings) -> list[Advice]:
    machine = findings.machine
    found = []
    if machine.native_missing:
        found.append(
            Advice(
                f"The native kernels are missing ({machine.native_missing}).",
                "Install soliton again for this Python. torch computes without them, several times "
                "slower.",
            )
        )
    elif machine.isa == "baseline":
        found.append(
            Advice(
                "This processor has none of the vector instructions that the kernels are built "
                f"for; the plain ones are used ({machine.isa}).",
                "In a virtual machine, pass the processor's own features on (cpu host).",
            )
        )
    if machine.has_driver and machine.cuda_missing:
        found.append(
            Advice(
                f"NVIDIA's driver is here, but its GPU cannot be used: {machine.cuda_missing}.",
                "Install the GPU part: pip install 'soliton[cuda]', or make CUDA=1 in a clone.",
            )
        )
    return found


def _of_model(findings: Findings) -> list[Advice]:
    model, free = findings.model, findings.machine.free_bytes
    if model is None:
        return []
    default, *smaller = model.formats
    if free is not None and default.memory_bytes > free:
        fits = next((each for each in smaller if each.memory_bytes <= free), None)
        return [
            Advice(
                f"{model.name} needs {default.memory_bytes / 1e9:.1f} GB with a context of "
                f"{model.n_tokens:,} tokens; {free / 1e9:.1f} GB are free.",
                f"--quantize {fits.format} takes {fits.memory_bytes / 1e9:.1f} GB."
                if fits
                else "Take a smaller model, or a shorter context (--max-seq-len).",
            )
        ]
    return [
        Advice(
            f"{model.name} reads {default.step_bytes / 1e9:.2f} GB of weights for each token.",
            f"--quantize {each.format} reads {each.step_bytes / 1e9:.2f} GB, so it is up to "
            f"{default.step_bytes / each.step_bytes:.1f} times as fast; docs/performance.md has "
            "what it costs in accuracy.",
        )
        for each in smaller[:1]
    ]


def _of_system(findings: Findings) -> list[Advice]:
    machine, cache = findings.machine, findings.cache
    found = []
    if machine.load >= _BUSY:
        found.append(
            Advice(
                f"In the last minute {machine.load:.1f} programs computed or waited for a "
                "processor, on average. So the rates above are too low.",
                "A token is as fast as its slowest thread: end them, or leave them a processor "
                "with --threads.",
            )
        )
    if machine.limit is not None and machine.limit != int(machine.limit):
        found.append(
            Advice(
                f"The container may use {machine.limit:g} processors; {machine.n_threads} compute.",
                "Give it a whole number of processors.",
            )
        )
    if machine.large_pages == "never":
        found.append(
            Advice(
                "The system gives no large pages, so weights are read up to a quarter slower.",
                f"As root: echo madvise > {_LARGE_PAGES}",
            )
        )
    if cache is not None and not cache.is_writable:
        found.append(
            Advice(
                f"Packed weights cannot be kept: {cache.directory} cannot be written.",
                "Name another directory with --panel-cache, or each start packs them anew.",
            )
        )
    if findings.n_connections < findings.wanted_connections:
        found.append(
            Advice(
                f"The limit on open files allows {findings.n_connections:,} connections, of "
                f"{findings.wanted_connections:,}.",
                "Raise it: ulimit -n, or LimitNOFILE in a systemd unit.",
            )
        )
    return found
