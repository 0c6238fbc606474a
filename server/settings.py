"""Every option of the server: default, range, names. The only reader of the environment.

An option comes from, in this order: a flag (a keyword of `Settings`), a SOLITON_* variable, the
TOML file named by --config or SOLITON_CONFIG, the default. Lists are comma-separated in a variable.
Imports no engine, so that a wrong option is said before anything is loaded.
"""

import os
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

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

_PREFIX = "SOLITON_"


def default_model() -> Path:
    """The model that ships with the engine, found without importing it."""
    spec = find_spec("engine")
    assert spec, "server and engine are installed together"
    assert spec.origin, "engine is a package with a file"
    return Path(spec.origin).parent / "default_model"


def default_panel_cache() -> Path | None:
    """Where a user's caches belong; None without a home."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    try:
        base = Path(named) if Path(named).is_absolute() else Path.home() / ".cache"
    except RuntimeError:
        return None
    return base / "soliton"


def panel_cache_directory(text: str) -> Path | None:
    """What an option says: a directory, or `off`."""
    return None if text == "off" else Path(text).expanduser()


class Settings(BaseSettings):
    """The options of one server. Raises pydantic.ValidationError, or SettingsError for the file."""

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        env_ignore_empty=True,
    )

    config: Path | None = Field(default=None, description="TOML file with these options as keys.")
    model: Path = Field(
        default_factory=default_model, description="Directory of a Hugging Face model."
    )
    served_model_name: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], NoDecode] = Field(
        default=(),
        description="Names of the model on the wire; answers without one in the request have the "
        "first. None: its own.",
    )
    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8000, ge=0, le=65535, description="0: any free port.")
    health_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="Second port of the same host that answers health checks only, whatever the "
        "first one is busy with. 0: any free one. None: there is none.",
    )
    device: str = Field(default="auto", description="auto, cpu or cuda.")
    dtype: str = Field(default="auto", description="auto, float32 or bfloat16.")
    quantize: str = Field(default="none", description="none, 8bit or 4bit: the weights.")
    kv_cache: str = Field(
        default="auto",
        description="auto, float32 (on the CPU), bfloat16 or 8bit: keys and values.",
    )
    max_seq_len: int | None = Field(
        default=None, ge=2, description="Context in tokens. None: the model's own."
    )
    threads: int | None = Field(default=None, ge=1, description="CPU threads. None: all cores.")
    require_native: bool = Field(
        default=False, description="Refuse to compute with torch what native code could."
    )
    panel_cache: Annotated[Path | None, NoDecode] = Field(
        default_factory=default_panel_cache,
        description="Directory for the packed weights of larger models, or off. "
        "Default: soliton in the user's cache directory.",
    )
    speculate: str = Field(
        default="ngram",
        description="off, ngram (guess from the text so far and recent answers) or draft "
        "(and with a draft model). Never changes an answer.",
    )
    draft_model: Path | None = Field(
        default=None, description="Directory of the draft model. None: the model's own."
    )
    prefix_cache_mb: int = Field(
        default=512,
        ge=0,
        description="Memory for keys and values of past prompts and answers. 0: only the last one.",
    )
    prefix_cache_dir: Path | None = Field(
        default=None, description="Directory where they go when memory is full. None: nowhere."
    )
    prefix_cache_disk_mb: int = Field(
        default=4096,
        ge=1,
        description="Size of that directory, with the files of other models. Longest unused go "
        "first.",
    )
    api_keys: Annotated[tuple[SecretStr, ...], NoDecode] = Field(
        default=(), description="Whoever sends one of these may use the server. None: everybody."
    )
    insecure_no_auth: bool = Field(
        default=False, description="Serve beyond this machine although there is no API key."
    )
    allow_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Names under which clients reach the server, without port; *: any. None: with "
        "API keys any, else the address it listens on and localhost.",
    )
    allow_origins: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="Web origins that browsers may call from (CORS). None: no other."
    )
    max_queue: int = Field(default=64, ge=0, description="Requests that may wait for the engine.")
    queue_timeout: float | None = Field(
        default=300.0, gt=0, description="Seconds that a request may wait for the engine, or off."
    )
    first_token_timeout: float | None = Field(
        default=None, gt=0, description="Seconds until a request must have its first token."
    )
    request_timeout: float | None = Field(
        default=None, gt=0, description="Seconds until a request must have its last token."
    )
    max_body_bytes: int = Field(
        default=8 * 1024 * 1024, ge=1024, description="Larger request bodies are refused."
    )
    header_timeout: float = Field(
        default=10.0, gt=0, description="Seconds in which the head of a request must arrive."
    )
    body_timeout: float = Field(
        default=30.0, gt=0, description="Seconds in which the body of a request must arrive."
    )
    max_connections: int = Field(
        default=1024,
        ge=1,
        description="Open connections; fewer where the limit of open files is lower.",
    )
    max_connections_per_address: int | None = Field(
        default=None,
        ge=1,
        description="Open connections from one address. None: three quarters of all.",
    )
    ping_interval: float = Field(
        default=5.0, gt=0, description="Seconds of silence before a stream gets a comment line."
    )
    send_timeout: float = Field(
        default=150.0,
        gt=0,
        description="Seconds after which a client that does not read is dropped.",
    )
    max_unread_bytes: int = Field(
        default=32 * 1024 * 1024,
        ge=64 * 1024,
        description="Memory for what a client has not read of one answer; four times as much for "
        "all of them together.",
    )
    drain_seconds: float = Field(
        default=25.0,
        ge=0,
        description="Seconds in which requests may end after SIGTERM; then they end with an error.",
    )
    hang_seconds: float = Field(
        default=60.0,
        gt=0,
        description="Seconds without a step after which a busy engine is lost: exit code 70.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @field_validator("served_model_name", "api_keys", "allow_hosts", "allow_origins", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        items = tuple(item for part in value.split(",") if (item := part.strip()))
        if not items:  # such as the value of a variable that was never set
            raise ValueError("nothing is listed; leave it out where nothing is meant")
        return items

    @field_validator("panel_cache", mode="before")
    @classmethod
    def _directory(cls, value: Any) -> Any:
        return panel_cache_directory(value) if isinstance(value, str) else value

    @field_validator("queue_timeout", mode="before")
    @classmethod
    def _limit(cls, value: Any) -> Any:
        return None if value == "off" else value

    @field_validator("api_keys")
    @classmethod
    def _check_keys(cls, keys: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        for key in (key.get_secret_value() for key in keys):
            if not key or any(character.isspace() or ord(character) < 32 for character in key):
                raise ValueError("an API key must not be empty and hold no white space")
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
    def _check_ports(self) -> "Settings":
        if self.port and self.port == self.health_port:
            raise ValueError(f"health_port must be another port than port, not {self.port} too")
        return self

    @model_validator(mode="after")
    def _check_open(self) -> "Settings":
        self.check_reach(self.host)
        return self

    def check_reach(self, host: str) -> None:
        """Raise ValueError unless whoever reaches `host` may use the server."""
        if not self.api_keys and not self.insecure_no_auth and not host_of(host).is_loopback:
            raise ValueError(
                f"host {host} can be reached from other machines: set api_keys, "
                f"or insecure_no_auth to serve everybody"
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
        if "api_keys" not in init_settings.init_kwargs:
            _check_variable()
        path = init_settings.init_kwargs.get("config") or os.environ.get(f"{_PREFIX}CONFIG")
        if path is None:
            return init_settings, env_settings
        return init_settings, env_settings, InitSettingsSource(settings_cls, _read_toml(Path(path)))


def _check_variable() -> None:
    """An empty variable is none, but where that would open the server: a secret that was not filled
    in. Raises SettingsError.
    """
    for name, value in os.environ.items():
        if name.upper() == f"{_PREFIX}API_KEYS" and not value.strip(" \t\r\n,"):
            raise SettingsError(
                f"{name} is set and holds no key: set it to the keys, separated by commas, "
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
    if values.get("api_keys") == []:
        raise SettingsError(
            f"{path}: api_keys holds no key: list the keys, or leave it out to serve without keys"
        )
    return values
