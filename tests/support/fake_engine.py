"""An engine for tests of the server: the real generator over a model that is a hash function.

Every byte is a token; 256 ends the text. The next token is the next byte of a script, or a letter
that depends on all tokens before it, so a mix-up of two requests shows. Gates and token time hold
the moments that a test needs; `faults` says what goes wrong, and where; `n_inside_max` counts the
callers that were inside the model at once.
"""

import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import numpy as np

from engine import (
    AbortFlag,
    ConstraintSpec,
    Engine,
    Extra,
    ReplyFormat,
    SamplingSettings,
    Stream,
    StreamingGenerator,
    StreamResult,
    TemplateError,
)
from engine.cache.kv import KVCache
from engine.cache.prefix import PrefixCache
from engine.device.open import open_ops
from engine.grammar.compiler import ConstraintCompiler
from engine.model.branches import Branches, PassesInTurn
from engine.model.model import MAX_VERIFY_ROWS, Model
from engine.sampling.logits import Logits
from tests.support.fault_script import FaultScript, Spoil
from tests.support.tiny_config import tiny_config

END = 256
VOCAB_SIZE = 257
CHUNK = 16


class ByteTokenizer:
    """Text is its UTF-8 bytes."""

    special_tokens: ClassVar = {"eos_token": "<|end|>"}
    vocab_size = VOCAB_SIZE
    bos_token_id = None
    adds_bos = False

    def __init__(self, faults: FaultScript) -> None:
        self._faults = faults

    def encode(
        self, text: str, *, add_special_tokens: bool = True, parse_special: bool = True
    ) -> list[int]:
        self._faults.pass_("tokenize")
        return list(text.encode())

    def encode_continuation(self, text: str) -> list[int]:
        return self.encode(text)

    def text_start(self, token_ids: Sequence[int], text: str) -> int | None:
        return 0

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        return b"".join(map(_bytes, token_ids)).decode(errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        self._faults.pass_("detokenize")
        return _bytes(token_id)

    def spelled(self, token_id: int) -> str:
        return _bytes(token_id).decode("latin-1")

    def is_special(self, token_id: int) -> bool:
        return token_id == END

    def is_control(self, token_id: int) -> bool:
        return self.is_special(token_id)

    def added_token_id(self, text: str) -> int | None:
        return END if text == "<|end|>" else None


class FakeModel:
    """The next token: from `script`, or from the one of `replies` whose key is in the prompt,
    counted from the end of the prompt, then END; else a hash.
    """

    def __init__(self, faults: FaultScript, *, max_seq_len: int) -> None:
        self.config = tiny_config("Fake", vocab_size=VOCAB_SIZE, max_seq_len=max_seq_len, end=END)
        self.max_seq_len = max_seq_len
        self.ops = open_ops(device="cpu")
        self.script: bytes | None = None
        self.replies: dict[bytes, bytes] = {}
        self.token_time = 0.0
        self.prefill_gate = _open_gate()
        self.decode_gate = _open_gate()
        self.in_prefill = threading.Event()
        self.in_decode = threading.Event()
        self.faults = faults
        self.held_in_decode = False
        self.n_decoded = 0
        self.n_prompts = 0
        self.n_inside_max = 0
        self._n_inside = 0
        self._n_prompt = 1

    def prefill(
        self,
        token_ids: Sequence[int],
        cache: KVCache,
        *,
        abort: AbortFlag | None = None,
        on_progress: Callable[[int, int], None] | None = None,
        on_logits: Callable[[Logits], None] | None = None,
        ends: Sequence[int] = (),
        after_pass: Callable[[], None] | None = None,
        next_id: int | None = None,
    ) -> bool:
        with self._inside():
            self.n_prompts += 1
            self.in_prefill.set()
            for start in range(0, len(token_ids), CHUNK):
                self.prefill_gate.wait()
                if abort is not None and abort.is_set():
                    return False
                self.faults.pass_("chunk", start // CHUNK)
                chunk = token_ids[start : start + CHUNK]
                cache.append(chunk)
                if on_logits is not None:
                    on_logits(np.stack([_peaked(token_id % 26 + ord("a")) for token_id in chunk]))
                if on_progress is not None:
                    on_progress(start + len(chunk), len(token_ids))
            self._n_prompt = cache.length + 1
            return True

    def decode_rows(self, cache: KVCache) -> int:
        return MAX_VERIFY_ROWS

    def decode(
        self, token_ids: Sequence[int], cache: KVCache, *, guesses_next: bool = False
    ) -> Logits:
        with self._inside():
            self.in_decode.set()
            # Native code checks no flag: cancelling has to wait until it returns.
            self.held_in_decode = not self.decode_gate.is_set()
            self.decode_gate.wait()
            time.sleep(self.token_time)
            cache.append(token_ids)
            self.n_decoded += 1
            n_tokens = cache.length
            lengths = range(n_tokens - len(token_ids) + 1, n_tokens + 1)
            return np.stack([self._row(cache.token_ids[:length]) for length in lengths])

    def expect_next(self, cache: KVCache) -> None:
        """Nothing runs ahead."""

    def begin(self, token_id: int, cache: KVCache) -> None:
        """Nothing runs ahead."""

    def branches(self, cache: KVCache, *, n_positions: int) -> Branches:
        return PassesInTurn(cache, lambda token_id: self.decode([token_id], cache))

    def _row(self, token_ids: Sequence[int]) -> Logits:
        index = len(token_ids) - self._n_prompt
        spoil = self.faults.pass_("token", index)
        logits = _peaked(self._next(token_ids, index))
        return _spoilt(logits, spoil) if spoil else logits

    def _next(self, token_ids: Sequence[int], index: int) -> int:
        script = self.script
        if script is None and self.replies:
            prompt = b"".join(map(_bytes, token_ids[: self._n_prompt]))
            script = next((reply for key, reply in self.replies.items() if key in prompt), None)
        if script is not None:
            return script[index] if index < len(script) else END
        return next_letter(token_ids)

    @contextmanager
    def _inside(self) -> Iterator[None]:
        self._n_inside += 1
        self.n_inside_max = max(self.n_inside_max, self._n_inside)
        try:
            yield
        finally:
            self._n_inside -= 1


class FakeGenerator(StreamingGenerator):
    """The real tokenizer's interface, with the points at which faults can be planted."""

    faults: FaultScript

    def begin(self, *args: Any, **options: Any) -> Stream:
        self.faults.pass_("admit")
        stream = super().begin(*args, **options)
        step, end = stream.step, stream.end

        def faulty(ban_tokens: Sequence[int] = ()) -> StreamResult:
            result = step(ban_tokens)
            if result.eos:
                self.faults.pass_("cleanup")
            return result

        def faulty_end() -> None:
            self.faults.pass_("pause")
            end()

        stream.step = faulty  # type: ignore[method-assign]
        stream.end = faulty_end  # type: ignore[method-assign]
        return stream


class FakeEngine:
    """The attributes of Engine that the server uses."""

    def __init__(self, *, max_seq_len: int = 512) -> None:
        self.max_seq_len = max_seq_len
        self.renew()

    def renew(self) -> None:
        """Begins again with an empty cache and nothing scripted, while it serves."""
        max_seq_len = self.max_seq_len
        self.faults = FaultScript()
        self.model = FakeModel(self.faults, max_seq_len=max_seq_len)
        self.model_id = "fake"
        self.config = self.model.config
        self.tokenizer = ByteTokenizer(self.faults)
        self.default_settings = SamplingSettings(temperature=0.0)
        self.eos_token_ids = (END,)
        self.created = 1_700_000_000
        self.fingerprint = "fp_fake"
        self.weight_bytes = 1 << 20
        self.kv_bytes = 1 << 10
        self.is_asleep = False
        self.constraints = ConstraintCompiler(self.tokenizer, VOCAB_SIZE, self.eos_token_ids)
        self.template: Any = SimpleNamespace(
            source="{{ messages }} <tool_call>", default_system=lambda variables: ""
        )
        self.reply_format = ReplyFormat.of("{{ messages }} <tool_call>", self.tokenizer)
        self.opening = ""  # what the template puts after the opening of the assistant's turn
        self.rendered: dict[str, Any] = {}
        cache = KVCache(self.config, self.model.ops, max_seq_len=max_seq_len)
        self.generator = FakeGenerator(
            cast(Model, self.model),
            PrefixCache(cache),
            self.tokenizer,
            eos_token_ids=self.eos_token_ids,
            constraints=self.constraints,
        )
        self.generator.faults = self.faults

    def warm_up(self) -> None:
        pass

    def sleep(self) -> None:
        self.generator.end_stream()
        self.is_asleep = True

    def wake(self, on_progress: Callable[[int, int], None], make_room: Callable[[], None]) -> None:
        make_room()
        on_progress(1, 1)
        self.is_asleep = False

    def fill_in_ids(
        self,
        prefix: str,
        suffix: str,
        *,
        begun: str = "",
        extras: Sequence[Extra] = (),
        room: int | None = None,
    ) -> list[int]:
        before = "".join(f"[{extra.text}]" for extra in extras)
        return self.tokenizer.encode(f"{before}<{prefix}{begun}|{suffix}>")

    def check_length(self, text: str, *, param: str) -> None:
        """Every text is short enough to be encoded."""

    def check_constraint(self, spec: ConstraintSpec, *, param: str | None) -> None:
        self.constraints.compile(spec, param=param)

    def constraint_work(
        self, spec: ConstraintSpec, *, param: str | None
    ) -> Callable[[AbortFlag], None] | None:
        return self.constraints.work_for(spec, param=param)

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        template_kwargs: Mapping[str, Any] = {},
        must_fit: bool = False,
    ) -> list[int]:
        """Notes what it was called with in `rendered`; the prompt shows what a test may look at."""
        self.faults.pass_("render")
        self.rendered = {
            "messages": messages, "tools": tools, "documents": documents,
            "add_generation_prompt": add_generation_prompt,
            "continue_final_message": continue_final_message, "template_kwargs": template_kwargs,
        }  # fmt: skip
        if messages[-1]["role"] == "assistant" and add_generation_prompt:
            raise TemplateError("the last message must be the user's")
        text = "".join(f"{message['role']}: {message['content']}\n" for message in messages)
        if add_generation_prompt:
            text += f"assistant: {self.opening}"
        elif continue_final_message:
            text = text[:-1]
        return self.tokenizer.encode(text)

    def writes(self, *, tools: bool = True, reasoning: bool = False) -> None:
        """Whether the template supports tools and reasoning."""
        known = " <tool_call>" * tools + " </think>" * reasoning
        self.reply_format = ReplyFormat.of("{{ messages }}" + known, self.tokenizer)

    def turn_starts(self, prompt_ids: Sequence[int]) -> tuple[int, ...]:
        return ()

    @property
    def as_engine(self) -> Engine:
        return cast(Engine, self)


def _bytes(token_id: int) -> bytes:
    return bytes([token_id]) if token_id < END else b"<|end|>"


def _spoilt(logits: Logits, spoil: Spoil) -> Logits:
    logits[slice(None) if spoil.all else ord("q")] = spoil.value
    return logits


def _peaked(token_id: int) -> Logits:
    logits = np.linspace(-1.0, 0.0, VOCAB_SIZE, dtype=np.float32)
    logits[token_id] = 20.0
    return logits


def next_letter(token_ids: Sequence[int]) -> int:
    return ord("a") + zlib.crc32(b"".join(id_.to_bytes(2, "big") for id_ in token_ids)) % 26


def fake_reply(prompt: str, n_tokens: int) -> str:
    """What the fake engine answers to `prompt` when it serves nothing else."""
    token_ids = list(prompt.encode())
    n_prompt = len(token_ids)
    for _ in range(n_tokens):
        token_ids.append(next_letter(token_ids))
    return bytes(token_ids[n_prompt:]).decode()


def _open_gate() -> threading.Event:
    gate = threading.Event()
    gate.set()
    return gate
