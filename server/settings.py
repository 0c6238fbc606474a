"""Every option of the server: default, range, names. The only reader of the environment.

An option comes from, in this order: a flag (a keyword of `Settings`), a SOLITON_* variable, the
TOML file named by --config or SOLITON_CONFIG, the default. Lists are comma-separated in a variable.
Imports no engine, so that a wrong option is said before anything is loaded.
"""

import ipaddress
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
    served_name: str | None = Field(
        default=None, min_length=1, description="Name of the model on the wire. None: its own."
    )
    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8000, ge=0, le=65535, description="0: any free port.")
    device: str = Field(default="auto", description="auto, cpu or cuda.")
    dtype: str = Field(default="auto", description="auto, float32 or bfloat16.")
    quantize: str = Field(default="none", description="none, 8bit or 4bit: weights on the CPU.")
    kv_cache: str = Field(
        default="auto", description="auto, float32, bfloat16 or 8bit: keys and values on the CPU."
    )
    max_seq_len: int | None = Field(
        default=None, ge=2, description="Context in tokens. None: the model's own."
    )
    threads: int | None = Field(default=None, ge=1, description="CPU threads. None: all cores.")
    require_native: bool = Field(
        default=False, description="Refuse to compute on the CPU with torch."
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
    api_keys: Annotated[tuple[SecretStr, ...], NoDecode] = Field(
        default=(), description="Whoever sends one of these may use the server. None: everybody."
    )
    insecure_no_auth: bool = Field(
        default=False, description="Serve beyond this machine although there is no API key."
    )
    allow_origins: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="Web origins that browsers may call from (CORS). None: no other."
    )
    max_queue: int = Field(default=64, ge=0, description="Requests that may wait for the engine.")
    max_body_bytes: int = Field(
        default=8 * 1024 * 1024, ge=1024, description="Larger request bodies are refused."
    )
    ping_interval: float = Field(
        default=15.0, gt=0, description="Seconds of silence before a stream gets a comment line."
    )
    send_timeout: float = Field(
        default=30.0,
        gt=0,
        description="Seconds after which a client that does not read is dropped.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @field_validator("api_keys", "allow_origins", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(item for part in value.split(",") if (item := part.strip()))
        return value

    @field_validator("panel_cache", mode="before")
    @classmethod
    def _directory(cls, value: Any) -> Any:
        return panel_cache_directory(value) if isinstance(value, str) else value

    @field_validator("api_keys")
    @classmethod
    def _check_keys(cls, keys: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        if any(not key.get_secret_value().strip() for key in keys):
            raise ValueError("an API key must not be empty")
        return keys

    @model_validator(mode="after")
    def _check_open(self) -> "Settings":
        if not self.api_keys and not self.insecure_no_auth and not _is_loopback(self.host):
            raise ValueError(
                f"host {self.host} can be reached from other machines: set api_keys, "
                f"or insecure_no_auth to serve everybody"
            )
        return self

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
        path = init_settings.init_kwargs.get("config") or os.environ.get(f"{_PREFIX}CONFIG")
        if path is None:
            return init_settings, env_settings
        return init_settings, env_settings, InitSettingsSource(settings_cls, _read_toml(Path(path)))


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: {error}") from error


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
