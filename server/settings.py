"""Every option of the server: name, default and range. The only reader of the environment.

The value of an option comes from the first of these that sets it: a flag (a keyword of `Settings`),
a SOLITON_* variable, the TOML file named by --config or SOLITON_CONFIG, the default. Lists are
comma-separated in a flag or variable. Imports no engine, so that a wrong option is reported before
anything is loaded.
"""

import os
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from .http.host_names import host_of
from .suggest import did_you_mean

_PREFIX = "SOLITON_"


def user_cache() -> Path | None:
    """`soliton` in the user's cache directory; None without a home directory."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    try:
        base = Path(named) if Path(named).is_absolute() else Path.home() / ".cache"
    except RuntimeError:
        return None
    return base / "soliton"


def user_state() -> Path | None:
    """`soliton` in the directory for what the user's programs remember; None without a home."""
    named = os.environ.get("XDG_STATE_HOME", "")
    try:
        base = Path(named) if Path(named).is_absolute() else Path.home() / ".local" / "state"
    except RuntimeError:
        return None
    return base / "soliton"


class TerminalKind(NamedTuple):
    """What the user's terminal understands and the user wants."""

    has_escapes: bool
    """Whether the cursor can be moved; not in a dumb terminal."""
    has_colors: bool
    """Not if NO_COLOR is set (no-color.org)."""


def terminal_kind() -> TerminalKind:
    has_escapes = os.environ.get("TERM", "dumb") != "dumb"
    return TerminalKind(has_escapes, has_escapes and not os.environ.get("NO_COLOR"))


def panel_cache_directory(text: str) -> Path | None:
    """The value of an option: a directory, or None for `off`."""
    return None if text == "off" else Path(text).expanduser()


class Settings(BaseSettings):
    """The options of one server. Raises pydantic.ValidationError, or SettingsError for the TOML
    file and an API key variable without a key. A description ends with the default where the
    value does not show it.
    """

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        env_ignore_empty=True,
    )

    config: Path | None = Field(
        default=None, description="TOML file with these options as keys (default: none)"
    )
    model: str | None = Field(
        default=None,
        min_length=1,
        description="GGUF file, directory of a Hugging Face model, ORG/NAME[@REVISION] on the Hub, "
        "or smollm2 (default: the built-in model)",
    )
    models: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="NAME=MODEL of each of several models; a request's `model` chooses, and the "
        "first one answers those without it (default: the one MODEL)",
    )
    models_mb: int | None = Field(
        default=None,
        ge=1,
        description="memory in MiB for the weights that are loaded at a time, with keys and values "
        "of all models (default: one model's weights at a time)",
    )
    model_turn: float | None = Field(
        default=None,
        gt=0,
        description="time that a model which was just loaded stays in memory while others wait "
        "(default: as long as loading it took)",
    )
    served_model_name: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], NoDecode] = Field(
        default=(),
        description="names of the model in the API; the first one is used when a request names "
        "none (default: the model's own name)",
    )
    host: str = Field(default="127.0.0.1", description="address to listen on")
    port: int = Field(
        default=8000, ge=0, le=65535, description="port to listen on; 0 picks a free one"
    )
    health_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="second port on the same host for health checks only, which answers however "
        "busy the first one is; 0 picks a free one (default: none)",
    )
    device: str = Field(default="auto", description="device to run on; cuda:N picks a GPU")
    dtype: str = Field(
        default="auto", description="number format of the weights; float16 on CUDA only"
    )
    quantize: str = Field(
        default="none",
        description="quantization of the weights; 6bit and 5bit on the CPU only",
    )
    kv_cache: str = Field(
        default="auto",
        description="format of keys and values; float32, k8v4 and 4bit on the CPU only",
    )
    max_seq_len: int | None = Field(
        default=None,
        ge=2,
        description="context length in tokens (default: the model's own, at most 8192)",
    )
    chat_template: Path | None = Field(
        default=None,
        description="file with a chat template in Jinja's language (default: the model's own)",
    )
    threads: int | None = Field(default=None, ge=1, description="CPU threads (default: all cores)")
    require_native: bool = Field(
        default=False,
        description="fail if the native kernels are missing, instead of falling back to torch",
    )
    panel_cache: Annotated[Path | None, NoDecode] = Field(
        default_factory=user_cache,
        description="directory that caches the packed weights of larger models "
        "(default: soliton in the user's cache directory)",
    )
    speculate: str = Field(
        default="ngram",
        description="speculative decoding: drafts from the text so far and recent answers (ngram) "
        "and with a draft model (draft), the model's own MTP block (mtp) or an EAGLE-3 head "
        "(eagle) too; never changes an answer",
    )
    draft_model: Path | None = Field(
        default=None,
        description="directory of the draft model or EAGLE-3 head (default: the one in the model's "
        "directory)",
    )
    prefix_cache_mb: int = Field(
        default=512,
        ge=0,
        description="memory in MiB for keys, values and states of past prompts and answers; "
        "0 keeps only the last one",
    )
    prefix_cache_dir: Path | None = Field(
        default=None,
        description="directory where they are saved when memory is full and at shutdown "
        "(default: they are not saved)",
    )
    prefix_cache_disk_mb: int = Field(
        default=4096,
        ge=1,
        description="size limit of that directory in MiB, including files of other models; the "
        "least recently used are deleted first",
    )
    keep_streams: Literal["all", "stored", "none"] = Field(
        default="stored",
        description="which streams are kept after their end, for /v1/streams: those of requests "
        "with store, all but those with store false, or none",
    )
    keep_streams_mb: int = Field(
        default=64,
        ge=0,
        description="memory in MiB for kept streams; the least recently read are given up first",
    )
    keep_streams_seconds: float = Field(
        default=3600.0, gt=0, description="how long a stream is kept that nobody reads"
    )
    keep_streams_dir: Path | None = Field(
        default=None,
        description="directory where kept streams outlive the server: those that have ended, and "
        "those that are paused, also by its shutdown (default: they are gone with it)",
    )
    slot_save_path: Path | None = Field(
        default=None,
        description="directory for POST /slots/0, which saves and restores what the cache holds of "
        "the last text; any client with a key may do so (default: none)",
    )
    idle_unload: float | None = Field(
        default=None,
        gt=0,
        description="time without a request after which the memory of the weights is given back; "
        "the next request loads them again (default: never)",
    )
    api_keys: Annotated[tuple[SecretStr, ...], NoDecode] = Field(
        default=(),
        description="API keys; all requests except health checks need one. Other users of the "
        "machine can see flags: set SOLITON_API_KEYS instead (default: no key needed)",
    )
    admin_keys: Annotated[tuple[SecretStr, ...], NoDecode] = Field(
        default=(),
        description="keys that may load and unload models, besides all that an API key may; as "
        "with these, set SOLITON_ADMIN_KEYS instead (default: nobody may)",
    )
    insecure_no_auth: bool = Field(
        default=False, description="allow other machines to use the server without an API key"
    )
    allow_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="host names under which clients reach the server, without port; * for any "
        "(default: any with API keys, else localhost and the address of --host)",
    )
    allow_origins: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="origins of web pages that may use the server (CORS), such as "
        "https://chat.example; * for any (default: none)",
    )
    max_queue: int = Field(default=64, ge=0, description="requests that may wait for the engine")
    queue_timeout: float | None = Field(
        default=300.0, gt=0, description="how long a request may wait for the engine"
    )
    first_token_timeout: float | None = Field(
        default=None,
        gt=0,
        description="time within which a request must get its first token (default: no limit)",
    )
    request_timeout: float | None = Field(
        default=None, gt=0, description="time that a whole request may take (default: no limit)"
    )
    max_body_bytes: int = Field(
        default=8 * 1024 * 1024, ge=1024, description="largest request body"
    )
    header_timeout: float = Field(
        default=10.0, gt=0, description="time within which the head of a request must arrive"
    )
    body_timeout: float = Field(
        default=30.0, gt=0, description="time within which the body of a request must arrive"
    )
    max_connections: int = Field(
        default=1024,
        ge=1,
        description="open connections; fewer if the limit of open files is too low",
    )
    max_connections_per_address: int | None = Field(
        default=None,
        ge=1,
        description="open connections from one address (default: three quarters of all)",
    )
    ping_interval: float = Field(
        default=5.0, gt=0, description="silence after which a stream gets a comment line"
    )
    send_timeout: float = Field(
        default=150.0, gt=0, description="time after which a client that reads nothing is dropped"
    )
    max_unread_bytes: int = Field(
        default=32 * 1024 * 1024,
        ge=64 * 1024,
        description="memory for the unread part of one answer; four times as much for all answers "
        "together",
    )
    drain_seconds: float = Field(
        default=25.0,
        ge=0,
        description="time that requests have to finish after SIGTERM; the rest get an error",
    )
    hang_seconds: float = Field(
        default=60.0,
        gt=0,
        description="time without a step after which a busy engine counts as hung, and the server "
        "exits with code 70",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info",
        description="least severe lines of the log; debug also shows messages of exceptions, "
        "which may quote prompts",
    )
    access_log: bool = Field(
        default=False,
        description="log one line per request: id, status, tokens, times; no prompt, no key",
    )

    otlp_endpoint: str | None = Field(
        default=None,
        description="URL of an OpenTelemetry collector (OTLP over HTTP) that gets the spans of "
        "each request: queue, prefill, decode; needs the extra otel",
    )

    keep_billing_header: bool = Field(
        default=False,
        description="let the model see the x-anthropic-billing-header line of Claude Code's system "
        "prompt, which changes with every request: then no prompt is found in the cache",
    )

    @field_validator(
        "models", "served_model_name", "api_keys", "admin_keys", "allow_hosts", "allow_origins",
        mode="before",
    )  # fmt: skip
    @classmethod
    def _split(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        items = tuple(item for part in value.split(",") if (item := part.strip()))
        if not items:  # for example from a shell variable that is not set
            raise ValueError("the list is empty: list at least one item, or leave the option out")
        return items

    @field_validator("otlp_endpoint")
    @classmethod
    def _collector(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("http://", "https://")):
            raise ValueError("must be a URL such as http://127.0.0.1:4318")
        if value is not None and find_spec("opentelemetry.exporter.otlp.proto.http") is None:
            raise ValueError("OpenTelemetry is not installed: pip install 'soliton[otel]'")
        return value

    @field_validator("panel_cache", mode="before")
    @classmethod
    def _directory(cls, value: Any) -> Any:
        return panel_cache_directory(value) if isinstance(value, str) else value

    @field_validator("slot_save_path")
    @classmethod
    def _check_slots(cls, path: Path | None) -> Path | None:
        if path is not None and not path.is_dir():
            raise ValueError(f"{path} is no directory: make it first")
        return path

    @field_validator("queue_timeout", mode="before")
    @classmethod
    def _limit(cls, value: Any) -> Any:
        return None if value == "off" else value

    @field_validator("models")
    @classmethod
    def _check_models(cls, models: tuple[str, ...]) -> tuple[str, ...]:
        for text in models:
            name, equals, model = (part.strip() for part in text.partition("="))
            if not (name and equals and model):
                raise ValueError(f"must be a name and a model, such as small=./qwen3, not {text!r}")
        names = [name for name, _ in named_models(models)]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"two models are called {twice!r}: give each its own name")
        return models

    @field_validator("api_keys", "admin_keys")
    @classmethod
    def _check_keys(cls, keys: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        for key in (key.get_secret_value() for key in keys):
            if not key or any(character.isspace() or ord(character) < 32 for character in key):
                raise ValueError("an API key must not be empty or contain white space")
        return keys

    @field_validator("allow_hosts")
    @classmethod
    def _check_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if host != "*":
                host_of(host)
        return hosts

    @field_validator("host")
    @classmethod
    def _check_host(cls, host: str) -> str:
        host_of(host)
        return host

    @model_validator(mode="after")
    def _check_named(self) -> "Settings":
        if not self.models:
            return self
        if self.model is not None:
            raise ValueError(
                f"a MODEL, {self.model}, and --model NAME=MODEL exclude each other: name that one "
                "too"
            )
        if self.served_model_name:
            raise ValueError("--served-model-name is for MODEL: --model NAME=MODEL has the name")
        for option in ("chat_template", "draft_model"):
            if len(self.models) > 1 and getattr(self, option) is not None:
                raise ValueError(
                    f"--{option.replace('_', '-')} is for one model, and there are "
                    f"{len(self.models)}: put the file into its model's directory"
                )
        return self

    @model_validator(mode="after")
    def _check_ports(self) -> "Settings":
        if self.port and self.port == self.health_port:
            raise ValueError(f"health_port must be another port than port, not also {self.port}")
        return self

    @model_validator(mode="after")
    def _check_open(self) -> "Settings":
        self.check_reach(self.host)
        return self

    @property
    def all_keys(self) -> tuple[SecretStr, ...]:
        """Those that open the server: none, unless there are API keys."""
        return (*self.api_keys, *self.admin_keys) if self.api_keys else ()

    @property
    def named_models(self) -> list[tuple[str, str]]:
        """The names of `models`, each with its model."""
        return named_models(self.models)

    def check_reach(self, host: str) -> None:
        """Raise ValueError if other machines can reach `host` and no key protects the server."""
        if not self.api_keys and not self.insecure_no_auth and not host_of(host).is_loopback:
            raise ValueError(
                f"other machines can reach host {host}: set API keys (SOLITON_API_KEYS or "
                "--api-keys), or --insecure-no-auth to serve everyone"
            )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        assert isinstance(init_settings, InitSettingsSource)
        for option in ("api_keys", "admin_keys"):
            if option not in init_settings.init_kwargs:
                _check_variable(option)
        path = init_settings.init_kwargs.get("config") or os.environ.get(f"{_PREFIX}CONFIG")
        if path is None:
            return init_settings, env_settings
        return init_settings, env_settings, InitSettingsSource(settings_cls, _read_toml(Path(path)))


def set_variable(option: str) -> str | None:
    """The environment variable that sets an option, if one does."""
    wanted = f"{_PREFIX}{option}".upper()
    return next(
        (name for name, text in os.environ.items() if name.upper() == wanted and text), None
    )


def unknown_variables() -> Iterator[str]:
    """The SOLITON_* variables that no option has, in order, each with the one that it resembles."""
    known = {name.upper() for name in Settings.model_fields}
    for name in sorted(os.environ):
        prefix, option = name[: len(_PREFIX)].upper(), name[len(_PREFIX) :].upper()
        if prefix == _PREFIX and option not in known:
            yield name + did_you_mean(option, known, prefix=_PREFIX)


def named_models(models: tuple[str, ...]) -> list[tuple[str, str]]:
    """(name, model) of each "NAME=MODEL"."""
    pairs = (text.partition("=") for text in models)
    return [(name.strip(), model.strip()) for name, _, model in pairs]


def _check_variable(option: str) -> None:
    """Refuse a variable for keys without a key, probably a secret that was not filled in. Other
    empty variables count as not set, but this one would open the server. Raises SettingsError.
    """
    for name, value in os.environ.items():
        if name.upper() == f"{_PREFIX}{option}".upper() and not value.strip(" \t\r\n,"):
            raise SettingsError(
                f"{name} is set but holds no key: set it to the keys, separated by commas, "
                "or unset it to serve without keys"
            )


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            values = tomllib.load(file)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: {error}") from error
    for key, value in values.items():
        if key not in Settings.model_fields:
            table = ": options are not in tables" if isinstance(value, dict) else ""
            raise SettingsError(
                f"{path}: {key!r} is not an option{table}{did_you_mean(key, Settings.model_fields)}"
            )
    for option in ("api_keys", "admin_keys"):
        if values.get(option) == []:
            raise SettingsError(
                f"{path}: {option} is empty: list the keys, or leave it out to serve without keys"
            )
    return values
