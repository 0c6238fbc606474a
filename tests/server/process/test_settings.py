"""Settings: where an option comes from, and what is refused."""

from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError
from pydantic_settings import SettingsError

from server.settings import Settings, unknown_variables


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    path = tmp_path / "soliton.toml"
    path.write_text('port = 8001\nmax_queue = 5\napi_keys = ["one", "two"]\n')
    return path


def secrets(settings: Settings) -> list[str]:
    return [key.get_secret_value() for key in settings.api_keys]


def test_the_defaults_serve_the_bundled_model_on_the_loopback() -> None:
    settings = Settings()
    assert settings.model is None
    assert (settings.host, settings.port, settings.api_keys) == ("127.0.0.1", 8000, ())


def test_a_flag_wins_over_a_variable_over_the_file_over_the_default(
    toml: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOLITON_PORT", "8002")
    monkeypatch.setenv("SOLITON_MAX_QUEUE", "6")
    settings = Settings(config=toml, port=8003)
    assert settings.port == 8003
    assert settings.max_queue == 6
    assert secrets(settings) == ["one", "two"]
    assert settings.send_timeout == 150.0


def test_the_file_may_be_named_by_a_variable(toml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOLITON_CONFIG", str(toml))
    assert Settings().port == 8001


def test_the_wait_for_the_engine_may_be_without_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings().queue_timeout == 300.0
    monkeypatch.setenv("SOLITON_QUEUE_TIMEOUT", "off")
    assert Settings().queue_timeout is None


def test_lists_are_comma_separated_in_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOLITON_API_KEYS", "one, two,")
    monkeypatch.setenv("SOLITON_ALLOW_ORIGINS", "https://a.example")
    settings = Settings()
    assert secrets(settings) == ["one", "two"]
    assert settings.allow_origins == ("https://a.example",)


def test_keys_do_not_show_when_settings_are_printed() -> None:
    assert "secret-key" not in repr(Settings(api_keys=(SecretStr("secret-key"),)))


def test_an_empty_variable_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOLITON_PORT", "")
    assert Settings().port == 8000


@pytest.mark.parametrize("value", ["", " ", ",", " , ,"])
def test_a_variable_for_keys_without_a_key_is_an_error(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """A secret without a value must not open the server."""
    monkeypatch.setenv("SOLITON_API_KEYS", value)
    with pytest.raises(SettingsError, match=r"SOLITON_API_KEYS is set but holds no key.*unset it"):
        Settings()
    assert secrets(Settings(api_keys=(SecretStr("key"),))) == ["key"], "a flag wins"


@pytest.mark.parametrize("text", ["[]", '""', '" "', '[""]', '["one", ""]', '["one", " "]'])
def test_a_file_with_an_empty_key_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "soliton.toml"
    path.write_text(f"api_keys = {text}\n")
    with pytest.raises((ValidationError, SettingsError), match="api_keys"):
        Settings(config=path)


def test_the_port_for_health_checks_is_another_one() -> None:
    assert Settings(port=8000, health_port=8001).health_port == 8001
    assert Settings(port=0, health_port=0).health_port == 0
    with pytest.raises(ValidationError, match="health_port must be another port"):
        Settings(port=8000, health_port=8000)


def test_an_unknown_key_of_the_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text("prot = 8001\n")
    with pytest.raises(
        SettingsError, match=r"wrong\.toml: 'prot' is not an option; did you mean port"
    ):
        Settings(config=path)
    path.write_text("[server]\nport = 8001\n")
    with pytest.raises(SettingsError, match="'server' is not an option: options are not in tables"):
        Settings(config=path)


def test_a_variable_that_no_option_has_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(unknown_variables()) == []
    for name in ("SOLITON_PROT", "soliton_x", "SOLITON_PORT", "Soliton_Host", "SOLITONS"):
        monkeypatch.setenv(name, "1")
    assert list(unknown_variables()) == ["SOLITON_PROT; did you mean SOLITON_PORT?", "soliton_x"]


@pytest.mark.parametrize("text", ["port = ]\n", "port = 1\nport = 2\n"])
def test_a_broken_file_is_named_with_the_place(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.toml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=r"broken\.toml: .*"):
        Settings(config=path)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        Settings(config=tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", 70000),
        ("max_queue", -1),
        ("header_timeout", 0),
        ("body_timeout", float("inf")),
        ("max_connections", 0),
        ("max_connections_per_address", 0),
        ("health_port", 70000),
        ("ping_interval", 0),
        ("send_timeout", float("nan")),
        ("drain_seconds", -1),
        ("max_unread_bytes", 0),
        ("hang_seconds", 0),
        ("hang_seconds", float("inf")),
        ("queue_timeout", 0),
        ("queue_timeout", float("inf")),
        ("first_token_timeout", -1),
        ("request_timeout", float("nan")),
        ("max_seq_len", 1),
        ("threads", 0),
        ("log_level", "loud"),
        ("api_keys", (" ",)),
        ("served_model_name", ""),
        ("served_model_name", ("",)),
        ("nonsense", 1),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ValidationError, match=name):
        Settings(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org"])
def test_beyond_the_loopback_a_key_is_needed(host: str) -> None:
    with pytest.raises(ValidationError, match="SOLITON_API_KEYS or --api-keys"):
        Settings(host=host)
    assert Settings(host=host, api_keys=(SecretStr("key"),)).host == host
    assert Settings(host=host, insecure_no_auth=True).host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_on_the_loopback_no_key_is_needed(host: str) -> None:
    assert Settings(host=host).host == host


def test_packed_weights_go_to_the_users_cache_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Settings().panel_cache == tmp_path / "soliton"
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Settings().panel_cache == tmp_path / ".cache" / "soliton"
    monkeypatch.setenv("SOLITON_PANEL_CACHE", "/elsewhere")
    assert Settings().panel_cache == Path("/elsewhere")
    monkeypatch.setenv("SOLITON_PANEL_CACHE", "off")
    assert Settings().panel_cache is None
