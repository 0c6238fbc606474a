"""The options of `soliton serve`: flags in groups, and the settings that they give.

Owns the groups and how the help shows a value. `server.settings` owns names, defaults and ranges.
Imports no server, so that help and mistakes come at once.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import SettingsError

from ..settings import Settings
from .arguments import (
    DEVICES,
    DRAFTS,
    DTYPES,
    KV_FORMATS,
    QUANTIZATIONS,
    add_model_argument,
)
from .option_errors import bounds, flag, validation_message
from .terminal import CommandError, CommandParser

# Group -> option -> how the help shows its value.
GROUPS: dict[str, dict[str, str]] = {
    "model": {
        "models_mb": "MIB",
        "model_turn": "SECONDS",
        "served_model_name": "NAME,…",
        "max_seq_len": "TOKENS",
        "device": DEVICES,
        "dtype": DTYPES,
        "quantize": QUANTIZATIONS,
        "kv_cache": KV_FORMATS,
        "chat_template": "FILE",
    },
    "speed": {
        "threads": "N",
        "speculate": DRAFTS,
        "draft_model": "DIR",
        "require_native": "",
    },
    "network": {
        "host": "ADDRESS",
        "port": "PORT",
        "health_port": "PORT",
        "ping_interval": "SECONDS",
    },
    "limits": {
        "max_queue": "N",
        "queue_timeout": "SECONDS|off",
        "first_token_timeout": "SECONDS",
        "request_timeout": "SECONDS",
        "header_timeout": "SECONDS",
        "body_timeout": "SECONDS",
        "send_timeout": "SECONDS",
        "drain_seconds": "SECONDS",
        "hang_seconds": "SECONDS",
        "idle_unload": "SECONDS",
        "max_body_bytes": "BYTES",
        "max_unread_bytes": "BYTES",
        "max_connections": "N",
        "max_connections_per_address": "N",
    },
    "caches": {
        "prefix_cache_mb": "MIB",
        "prefix_cache_dir": "DIR",
        "prefix_cache_disk_mb": "MIB",
        "slot_save_path": "DIR",
        "panel_cache": "DIR|off",
        "keep_billing_header": "",
        "keep_streams": "all|stored|none",
        "keep_streams_mb": "MIB",
        "keep_streams_seconds": "SECONDS",
        "keep_streams_dir": "DIR",
    },
    "security": {
        "api_keys": "KEY,…",
        "admin_keys": "KEY,…",
        "insecure_no_auth": "",
        "allow_hosts": "HOST,…",
        "allow_origins": "ORIGIN,…",
    },
    "logging and configuration": {
        "log_level": "debug|info|warning|error",
        "access_log": "",
        "otlp_endpoint": "URL",
        "config": "PATH",
    },
}

_DESCRIPTION = """\
Serve a model over HTTP, with OpenAI's API.

Each option is also an environment variable (SOLITON_PORT) and a key in the TOML
file that --config names (port). A flag overrides a variable, and a variable the
file. Several models are SOLITON_MODELS and models there."""

_EXAMPLES = """
soliton serve                               # the built-in model at http://127.0.0.1:8000
soliton serve Qwen/Qwen3-0.6B --quantize 8bit --port 8080 --access-log
"""


def settings_from(argv: list[str]) -> Settings:
    """The settings, with the flags over everything else. Raises CommandError."""
    parser = CommandParser(
        prog="soliton serve",
        usage="[MODEL] [OPTION …]",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    add_serve_options(parser)
    return settings_of(vars(parser.read(argv)))


def settings_of(values: Mapping[str, object]) -> Settings:
    """The settings, with the flags over everything else. `values`: of the flags, None for those
    that were not given. Raises CommandError.
    """
    given: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
    if ("model" in given) != ("models" in given):  # one of the two overrides both variables
        given = {"model": None, "models": ()} | given
    try:
        return Settings(**given)
    except ValidationError as error:
        raise CommandError(validation_message(error, flags=given)) from error
    except SettingsError as error:
        raise CommandError(str(error)) from error


def add_serve_options(parser: CommandParser) -> None:
    """The models, and all options of a server in their groups."""
    add_model_argument(parser, several=True)
    for heading, options in GROUPS.items():
        group = parser.add_argument_group(heading)
        for name, metavar in options.items():
            field = Settings.model_fields[name]
            text = _help(field)
            if metavar:
                group.add_argument(flag(name), metavar=metavar, help=text)
            else:
                group.add_argument(flag(name), action="store_true", default=None, help=text)


def _help(field: FieldInfo) -> str:
    """The description, with range and default where it does not name them."""
    text = field.description or ""
    notes = [bounds(field)]
    if "(default: " in text:
        text, _, default = text.removesuffix(")").partition(" (default: ")
        notes.append(f"default: {default}")
    elif field.annotation is not bool:
        notes.append(f"default: {_shown(field.default)}")
    said = "; ".join(note for note in notes if note)
    return f"{text} ({said})".replace("%", "%%") if said else text


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, int) and value >= 2**20 and value % 2**20 == 0:
        return f"{value}, {value >> 20} MiB"
    return str(value)
