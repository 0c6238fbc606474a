"""Engine: a loaded model that generates text, and how it is loaded from its files.

Owns the composition: config, weights, tokenizer, template, cache and generator. Knows no HTTP.
One engine per process and device. It is not thread-safe by design: the caller serialises, and only
methods that say so may be called while a stream runs.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Unpack

from .abort import AbortFlag
from .cache.kv import KVCache
from .cache.prefix import PrefixCache
from .chat.messages import Rendering
from .chat.prompt import ChatPrompt
from .chat.reply.format import ReplyFormat
from .chat.template.template import ChatTemplate
from .chat.turn_starts import turn_opener, turn_starts
from .checkpoint.config import ModelConfig
from .checkpoint.generation_config import GenerationConfig
from .checkpoint.tensors import matrix_dtypes
from .description import chat_template, model_id
from .device.memory import context_length, memory_errors_as_load_errors
from .device.open import open_ops
from .device.ops import Ops
from .device.windows import kv_bytes
from .draft.opening import Drafts, draft_source, measure_costs, open_speculator
from .draft.speculator import Speculator
from .errors import InvalidInputError, ModelLoadError, TemplateError
from .fingerprint import fingerprint, with_common_keys
from .garbage import uncollected
from .grammar.compiler import ConstraintCompiler
from .grammar.spec import ConstraintSpec
from .load_options import LoadOptions, fields_as_arguments
from .model.model import Model
from .model.weights import weight_bytes
from .model_files import ModelFiles
from .sampling.settings import SamplingSettings
from .stored_tensor import StoredTensor
from .stream.generator import StreamingGenerator
from .text.fill_in import Extra, fill_in_ids
from .text.tokenizer import Tokenizer
from .weight_files import OnProgress, WeightFiles, drop_weights, read_weights, working_bytes

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Engine:
    """A loaded model: weights, tokenizer, chat template, generator."""

    model_id: str
    config: ModelConfig
    tokenizer: Tokenizer
    template: ChatTemplate | None
    model: Model
    cache: KVCache  # of the active sequence
    generator: StreamingGenerator
    constraints: ConstraintCompiler
    speculator: Speculator | None  # counts drafted and accepted tokens
    max_seq_len: int
    default_settings: SamplingSettings  # what the authors recommend; neutral by default
    eos_token_ids: tuple[int, ...]
    created: int  # when config.json or the GGUF file was written, in seconds since 1970
    reply_format: ReplyFormat  # how the model marks reasoning and tool calls
    fingerprint: str  # changes with the weights, their format, the tokenizer and the device
    turn_opener: int | None = None  # the control token with which the template opens a message
    weight_files: WeightFiles | None = None  # None: they cannot be read again

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights in memory, while it is awake."""
        ops = self.model.ops
        return weight_bytes(self.config, self.model.formats, ops.matrix_bytes)

    @property
    def kv_bytes(self) -> int:
        """Bytes of the keys and values of its context, which it holds while it sleeps, too."""
        ops = self.model.ops
        pass_rows = ops.prefill_rows if ops.goes_round else None
        return kv_bytes(self.config, ops.kv_format, self.max_seq_len, pass_rows)

    @classmethod
    @fields_as_arguments(LoadOptions)
    def load(cls, path: str | Path, options: LoadOptions) -> "Engine":
        """`load_with` with the fields of LoadOptions as arguments: `load(path, device="cpu")`."""
        return cls.load_with(path, options)

    @classmethod
    @uncollected()
    @memory_errors_as_load_errors()
    def load_with(cls, path: str | Path, options: LoadOptions) -> "Engine":
        """Loads a Hugging Face directory or a GGUF file; docs/models.md lists the families.

        Raises ModelLoadError with one line that names file, tensor or key, and reason.
        """
        source = ModelFiles.open(path)
        # The cheap checks come first: a wrong tokenizer is reported before gigabytes are read.
        files = _read(source, options)
        ops = _opened_ops(options, files)
        weights = read_weights(files.tensors, files.config, files.models, ops, options)
        length = _context_length(files, ops, options.max_seq_len)
        stretched = files.config.stretched_to(length)
        of_files = fingerprint(
            source.path,
            files.tensors,
            ops,
            stretched=stretched,
            chat_template=options.chat_template,
        )
        digits = with_common_keys(of_files, (each.common_keys for each in weights.layers))
        model = Model(weights, files.config, ops, max_seq_len=length)
        cache = KVCache(files.config, ops, max_seq_len=length)
        speculator = open_speculator(options.speculate, files.draft, model, cache)
        tokenizer = files.tokenizer
        reply_format = _reply_format(files.template, tokenizer, files.eos_token_ids)
        eos_token_ids = reply_format.ends(files.eos_token_ids)
        constraints = ConstraintCompiler(tokenizer, files.config.vocab_size, eos_token_ids)
        engine = cls(
            model_id=model_id(source.path),
            config=files.config,
            tokenizer=tokenizer,
            template=files.template,
            model=model,
            cache=cache,
            generator=StreamingGenerator(
                model,
                _prefix_cache(cache, options, digits),
                tokenizer,
                eos_token_ids=eos_token_ids,
                speculator=speculator,
                constraints=constraints,
                fingerprint=digits,
            ),
            constraints=constraints,
            speculator=speculator,
            max_seq_len=length,
            default_settings=files.default_settings,
            eos_token_ids=eos_token_ids,
            created=int(source.described_in.stat().st_mtime),
            reply_format=reply_format,
            fingerprint=digits,
            turn_opener=turn_opener(files.template, tokenizer),
            weight_files=WeightFiles(source.path, options, of_files),
        )
        if options.warm_up:
            engine.warm_up()
        return engine

    def warm_up(self) -> None:
        """Do what the first stream would otherwise wait for, and measure what drafts may cost. Does
        nothing the second time. Call it before the first stream: without it, streams are the same,
        but slower.
        """
        if self.model.is_warm:
            return
        # Measuring warms up too, except where passes run beside Python.
        if self.model.ops.is_async or self.speculator is None:
            self.model.warm_up(self.cache)
        if self.speculator is not None:
            measure_costs(self.speculator, self.model, self.cache)
        self.model.is_warm = True

    @property
    def is_asleep(self) -> bool:
        """Whether its weights are out of memory, so that no stream can begin."""
        return not self.model.has_weights

    def sleep(self) -> None:
        """Give the memory of the weights back. Ends the running stream; cached prompts stay, and
        everything that needs no weights goes on to work.
        """
        self.generator.end_stream()
        drop_weights(self.model, self.speculator)

    @memory_errors_as_load_errors()
    def wake(
        self,
        on_progress: OnProgress | None = None,
        make_room: Callable[[], None] = lambda: None,
    ) -> None:
        """Read the weights again. Answers are the same, bit for bit. `on_progress`: as at load.
        `make_room` is called when the files have been checked, before memory is taken for them.

        Raises ModelLoadError if there is no memory, or if the files are gone or have changed; it
        stays asleep then, and may be woken again.
        """
        assert self.weight_files is not None, "it was not loaded from files"
        self.weight_files.reload(
            self.model, self.speculator, self.tokenizer, on_progress, make_room
        )

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        must_fit: bool = False,
        **rendering: Unpack[Rendering],
    ) -> list[int]:
        """Prompt ids of what `render_chat` shows. Text of a message never becomes a control token.

        `must_fit`: raise ContextLengthError early for a prompt that certainly has too many tokens.
        """
        prompt = ChatPrompt.of(self._chat_template(), messages, **rendering)
        return prompt.token_ids(self.tokenizer, max_seq_len=self.max_seq_len if must_fit else None)

    def render_chat(
        self, messages: Sequence[Mapping[str, Any]], **rendering: Unpack[Rendering]
    ) -> str:
        """The prompt of `messages` (mappings with a role of ROLES, content, and so on) as text.

        Keywords: `tools`, `documents`, `add_generation_prompt`, `continue_final_message` and
        `template_kwargs`; see Rendering.

        Raises TemplateError (no template, it refuses the messages, or it exceeds its limits) and
        InvalidInputError, with the path of what is wrong in `param`.
        """
        return ChatPrompt.of(self._chat_template(), messages, **rendering).text()

    def _chat_template(self) -> ChatTemplate:
        if self.template is None:
            raise TemplateError(f"{self.model_id} has no chat template")
        return self.template

    def turn_starts(self, prompt_ids: Sequence[int]) -> tuple[int, ...]:
        """Where other prompts are likely to differ from that of a chat: the option of a stream."""
        return turn_starts(prompt_ids, self.turn_opener)

    def check_length(self, text: str, *, param: str) -> None:
        """Raise ContextLengthError for a text that is certainly too long for the context.

        A cheap lower bound: encoding still checks the exact length.
        """
        self.tokenizer.check_length(text, self.max_seq_len, param=param)

    def fill_in_ids(
        self,
        prefix: str,
        suffix: str,
        *,
        begun: str = "",
        extras: Sequence[Extra] = (),
        room: int | None = None,
    ) -> list[int]:
        """Prompt ids for filling in the text between `prefix` and `suffix`, neither of which can
        become a control token. Raises InvalidInputError if the tokenizer has no tokens for this.

        `begun`, `extras` and `room`: see engine/text/fill_in.py.
        """
        return fill_in_ids(self.tokenizer, prefix, suffix, begun=begun, extras=extras, room=room)

    def check_constraint(self, spec: ConstraintSpec, *, param: str | None) -> None:
        """Compile a constraint, so that a stream can begin with it at once.

        This can take seconds. Any thread may call it while a stream runs. Raises InvalidInputError
        for `param`, naming the keyword or the position at fault.
        """
        self.constraints.compile(spec, param=param)

    def constraint_work(
        self, spec: ConstraintSpec, *, param: str | None
    ) -> Callable[[AbortFlag], None] | None:
        """The slow part of `check_constraint`, to be run when and where the caller likes; None if
        there is none.

        Setting its abort flag ends it early, with an EngineError. Raises the errors of
        `check_constraint` that are known without that work.
        """
        return self.constraints.work_for(spec, param=param)


class _Files(NamedTuple):
    """What the files of a model say, read and checked; only the headers of its weights."""

    config: ModelConfig
    default_settings: SamplingSettings
    eos_token_ids: tuple[int, ...]
    tokenizer: Tokenizer
    template: ChatTemplate | None
    draft: Drafts | None
    tensors: Mapping[str, StoredTensor]

    @property
    def models(self) -> list[ModelConfig]:
        """The models that share the memory: this one and its draft model."""
        return [self.config, *([self.draft.config] if self.draft else [])]


def _read(source: ModelFiles, options: LoadOptions) -> _Files:
    config, generation = source.config, source.generation()
    default_settings = _settings_of(generation)
    tokenizer = source.tokenizer()
    template = chat_template(source, tokenizer, options.chat_template)
    return _Files(
        config=config,
        default_settings=default_settings,
        eos_token_ids=(generation.eos_token_ids or config.eos_token_ids or tokenizer.eos_token_ids),
        tokenizer=tokenizer,
        template=template,
        draft=draft_source(options.speculate, options.draft_model, source, tokenizer),
        tensors=source.tensors(),
    )


def _opened_ops(options: LoadOptions, files: _Files) -> Ops:
    return open_ops(
        device=options.device,
        dtype=options.dtype,
        quantize=options.quantize,
        kv_cache=options.kv_cache,
        stored_dtypes=matrix_dtypes(files.tensors),
        models=files.models,
        n_threads=options.n_threads,
        require_native=options.require_native,
    )


def _context_length(files: _Files, ops: Ops, wanted: int | None) -> int:
    """The context length, given the memory that the loaded weights leave."""
    pass_rows = ops.prefill_rows if ops.goes_round else None
    return context_length(
        files.config,
        wanted,
        bytes_of=lambda n: sum(
            kv_bytes(each, ops.kv_format, n, pass_rows) for each in files.models
        ),
        available=ops.available_bytes(),
        working=working_bytes(files.models, ops),
    )


def _prefix_cache(cache: KVCache, options: LoadOptions, digits: str) -> PrefixCache:
    prefix = PrefixCache(
        cache,
        byte_budget=options.prefix_bytes,
        directory=options.prefix_directory,
        disk_budget=options.prefix_disk_bytes,
        fingerprint=digits,
    )
    if cache.states is not None and options.prefix_bytes:
        logger.log(
            logging.INFO if prefix.state_capacity else logging.WARNING,
            "prefix cache: room for %d copies of the states of recurrent layers, %.1f MB each, and "
            "for keys and values of %d tokens",
            prefix.state_capacity,
            cache.states.n_bytes / 1e6,
            prefix.token_capacity,
        )
    return prefix


def _reply_format(
    template: ChatTemplate | None, tokenizer: Tokenizer, eos_token_ids: Sequence[int]
) -> ReplyFormat:
    if template is None:
        return ReplyFormat.of(None, tokenizer)
    form = ReplyFormat.of_template(template, tokenizer, eos_token_ids)
    if form.tools.is_unreadable:
        logger.warning(
            "chat template: its tool calls cannot be read back. Calls in its format stay text; "
            "with tools, the prompt describes another format to the model."
        )
    return form


def _settings_of(generation: GenerationConfig) -> SamplingSettings:
    """The recommended sampling settings; neutral if there are none."""
    try:
        return SamplingSettings(**generation.sampling)
    except InvalidInputError as error:
        raise ModelLoadError(f"{generation.where}: {error}") from error
