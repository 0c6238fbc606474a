"""A conversation of 30 turns between an agent and a hybrid model: what each server computes again.

    python -m bench.agent_cache WORK --llama-cpp SOURCES [--llama-server FILE] [--only SERVER]
        [--turns N]

Makes a random model in the shape of Qwen 3.5 (120M parameters, nine of twelve layers recurrent) in
the folder WORK, unless it is there, converts it to GGUF with llama.cpp's converter, and sends the
conversation of tests/support/agent_trace.py to Soliton and to llama-server, one after the other,
both with that file. Prints a table: the tokens of each prompt, those that no prompt before began
with, those that each server computed, and the seconds until the answer of 16 tokens was there.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from scripts.gguf_pairs import convert
from tests.support.agent_trace import Message, agent_trace, flattened

_SHAPE: dict[str, Any] = {
    "hidden_size": 768,
    "intermediate_size": 2048,
    "num_hidden_layers": 12,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "linear_num_key_heads": 8,
    "linear_num_value_heads": 16,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 3,
    "max_position_embeddings": 32768,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
    "tie_word_embeddings": True,
}
_VOCAB_SIZE, _CONTEXT, _N_ANSWER = 4096, 24576, 16
_SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class Answered(NamedTuple):
    """What a server did for a turn."""

    n_prompt: int
    n_computed: int
    seconds: float


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=Path, metavar="WORK")
    parser.add_argument("--llama-cpp", type=Path, metavar="SOURCES", required=True)
    parser.add_argument("--llama-server", type=Path, metavar="FILE")
    parser.add_argument("--turns", type=int, metavar="N", help="only the first N")
    parser.add_argument("--only", choices=["soliton", "llama-server"])
    parsed = parser.parse_args(arguments)
    file = parsed.work / "qwen35-120m-q8_0.gguf"
    if not file.exists():
        make_model(parsed.work, file, parsed.llama_cpp)
    turns = agent_trace()[: parsed.turns]
    results: dict[str, list[Answered]] = {}
    for name, command in _commands(file, parsed.llama_server).items():
        if parsed.only in (None, name):
            with _running(command) as url:
                results[name] = [_answered(url, flattened(turn)) for turn in turns]
    counts = [*_new_tokens(parsed.work, [flattened(turn) for turn in turns])]
    for each in results.values():
        assert [answer.n_prompt for answer in each] == [n for n, _ in counts], "other prompts"
    print(_table([turn.what for turn in turns], counts, results))


def make_model(work: Path, file: Path, sources: Path) -> None:
    """A random model, its tokenizer and its template, as a GGUF file of Q8_0."""
    import torch
    import transformers

    directory = work / "model"
    directory.mkdir(parents=True)
    _save_tokenizer(directory)
    torch.manual_seed(5)
    config = transformers.Qwen3_5TextConfig(
        vocab_size=_VOCAB_SIZE, bos_token_id=0, eos_token_id=2, pad_token_id=None, **_SHAPE
    )
    transformers.Qwen3_5ForCausalLM(config).save_pretrained(directory)
    convert(directory, file, sources=sources, pre="qwen2", stored="q8_0")


def _save_tokenizer(directory: Path) -> None:
    """One that was trained on the conversation, so that its words are tokens as in real ones."""
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, trainers
    from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(PRETOKENIZE_REGEX), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCAB_SIZE,
        special_tokens=[tokenizers.AddedToken(text, special=True) for text in _SPECIALS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    said = [_rendered(flattened(turn)) for turn in agent_trace()]
    tokenizer.train_from_iterator(said, trainer)
    # As many as the model has, whatever the conversation gave.
    n_missing = _VOCAB_SIZE - tokenizer.get_vocab_size()
    tokenizer.add_tokens([f"[unused{index}]" for index in range(n_missing)])
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|endoftext|>",
        "eos_token": "<|im_end|>",
        "add_bos_token": False,
        "chat_template": _TEMPLATE,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")


def _rendered(messages: Sequence[Message]) -> str:
    """What the template gives."""
    turns = (f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)
    return "".join(turns) + "<|im_start|>assistant\n"


def _new_tokens(
    work: Path, conversations: Sequence[Sequence[Message]]
) -> Iterator[tuple[int, int]]:
    """The tokens of each prompt, and how many of them follow what it shares with any before."""
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(str(work / "model" / "tokenizer.json"))
    seen: list[list[int]] = []
    for messages in conversations:
        ids = tokenizer.encode(_rendered(messages), add_special_tokens=False).ids
        yield len(ids), len(ids) - max((_shared(each, ids) for each in seen), default=0)
        seen.append(ids)


def _shared(first: Sequence[int], second: Sequence[int]) -> int:
    pairs = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


def _commands(file: Path, llama_server: Path | None) -> dict[str, list[str]]:
    """Without their ports."""
    soliton = [sys.executable, "-m", "server", "serve", str(file), "--speculate", "off"]
    commands = {"soliton": [*soliton, "--max-seq-len", str(_CONTEXT)]}
    if llama_server is not None:
        options = ["--jinja", "-c", str(_CONTEXT), "-np", "1", "-t", str(os.cpu_count())]
        commands["llama-server"] = [str(llama_server), "-m", str(file), *options]
    return commands


@contextmanager
def _running(command: Sequence[str]) -> Iterator[str]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    process = subprocess.Popen(
        [*command, "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        url = f"http://127.0.0.1:{port}"
        while not _is_ready(url):
            if process.poll() is not None:
                raise SystemExit(f"{command[0]} ended with {process.returncode}")
            time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def _answered(url: str, messages: Sequence[Message]) -> Answered:
    body = {"messages": messages, "max_tokens": _N_ANSWER, "temperature": 0, "ignore_eos": True}
    request = urllib.request.Request(
        f"{url}/v1/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    begun = time.perf_counter()
    try:
        with urllib.request.urlopen(request, timeout=600) as response:
            found: dict[str, Any] = json.load(response)
    except urllib.error.HTTPError as error:
        raise SystemExit(error.read().decode()) from error
    seconds = time.perf_counter() - begun
    usage = found["usage"]
    n_prompt = usage["prompt_tokens"]
    if "cache_n" in found.get("timings", {}):  # llama-server
        return Answered(n_prompt, found["timings"]["prompt_n"], seconds)
    n_cached = usage["prompt_tokens_details"]["cached_tokens"]
    return Answered(n_prompt, n_prompt - n_cached, seconds)


def _table(
    what: Sequence[str],
    counts: Sequence[tuple[int, int]],
    results: dict[str, list[Answered]],
) -> str:
    """In Markdown, with the sums of all turns."""
    heads = ["turn", "what is new", "prompt", "new"]
    heads += [head for name in results for head in (f"{name} computes", "s")]
    rows = [
        [str(index + 1), text, f"{n_prompt:,}", f"{n_new:,}"]
        for index, (text, (n_prompt, n_new)) in enumerate(zip(what, counts, strict=True))
    ]
    sums = ["", "all", *(f"{sum(column):,}" for column in zip(*counts, strict=True))]
    for answers in results.values():
        for row, answer in zip(rows, answers, strict=True):
            row += [f"{answer.n_computed:,}", f"{answer.seconds:.2f}"]
        sums += [f"{sum(each.n_computed for each in answers):,}"]
        sums += [f"{sum(each.seconds for each in answers):.1f}"]
    lines = [heads, ["---"] * len(heads), *rows, sums]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    main()
