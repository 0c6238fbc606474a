"""The models that a server is started with: their names, what they share, and mistakes."""

from pathlib import Path
from typing import Any

import pytest

from engine import DEFAULT_MODEL
from server.commands.serve_options import settings_from
from server.commands.served_models import load_models
from server.commands.terminal import CommandError
from server.settings import Settings

MIB = 2**20


def models_of(*models: str, **options: Any) -> list[Any]:
    return load_models(Settings(models=models, device="cpu", panel_cache=None, **options))


def refused(*argv: str) -> str:
    with pytest.raises(CommandError) as error:
        load_models(settings_from([*argv, "--device", "cpu", "--panel-cache", "off"]))
    return str(error.value)


def test_all_are_loaded_once_and_the_first_one_stays(tiny_model: Path) -> None:
    models = models_of(f"small={tiny_model}", f"story={DEFAULT_MODEL}", prefix_cache_mb=64)
    assert [(model.name, model.is_loaded) for model in models] == [
        ("small", True),
        ("story", False),
    ]
    assert all(model.loads.n == 1 and model.loads.seconds > 0 for model in models)
    assert models[0].engine.model_id != models[1].engine.model_id
    budgets = [model.engine.weight_files.options.prefix_bytes for model in models]
    assert budgets == [32 * MIB] * 2, "what all have together is shared"


def test_a_model_is_warm_before_its_first_stream(tiny_model: Path) -> None:
    first, second = models_of(f"story={DEFAULT_MODEL}", f"small={tiny_model}")
    assert not second.engine.model.is_warm, "a server is ready before its engines are"
    first.put_away()
    second.bring(lambda *_: None)
    assert second.engine.model.is_warm


def test_one_model_may_have_a_name_too(tiny_model: Path) -> None:
    [model] = models_of(f"mine={tiny_model}")
    assert (model.names, model.is_loaded) == (("mine",), True)


def test_a_model_that_cannot_be_loaded_is_named(tiny_model: Path, tmp_path: Path) -> None:
    good = f"--model=good={tiny_model}"
    missing = tmp_path / "missing"
    message = refused(good, f"--model=bad={missing}")
    assert message.startswith(f"--model bad={missing}: ")
    assert "--model typo=smolm2: smolm2: does not exist; did you mean smollm2?" in refused(
        good, "--model=typo=smolm2"
    )


def test_too_little_memory_says_how_much_it_takes(tiny_model: Path) -> None:
    both = (f"story={DEFAULT_MODEL}", f"small={tiny_model}")
    message = refused(*(f"--model={each}" for each in both), "--models-mb=1")
    least = int(message.removeprefix("--models-mb must be ").split()[0])
    assert "the weights of story need" in message
    for mib, has_room in ((least, True), (least - 1, False)):
        if has_room:
            models_of(*both, models_mb=mib)
        else:
            with pytest.raises(CommandError):
                models_of(*both, models_mb=mib)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--model", "a="], "--model: must be a name and a model, such as small=./qwen3, not 'a='"),
        (["--model", "a=x", "--model", "a=y"], "two models are called 'a'"),
        (["m", "--model", "a=x"], "a MODEL, m, and --model NAME=MODEL exclude each other"),
        (["--model", "a=x", "--served-model-name", "q"], "--model NAME=MODEL has the name"),
        (["--model", "a=x", "--model", "b=y", "--draft-model", "z"], "--draft-model is for one"),
        (["--model", "a=x", "--model", "b=y", "--chat-template", "z"], "--chat-template is for"),
    ],
)
def test_options_that_contradict_each_other(argv: list[str], said: str) -> None:
    with pytest.raises(CommandError) as error:
        settings_from(argv)
    assert said in str(error.value)


def test_what_exists_is_a_path_whatever_its_name(tmp_path: Path) -> None:
    path = tmp_path / "a=b"
    path.mkdir()
    assert settings_from(["--model", str(path)]).model == str(path)
    named = settings_from(["--model", f"name={path}"])
    assert (named.model, named.named_models) == (None, [("name", str(path))])


def test_a_variable_names_them_and_flags_override_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOLITON_MODELS", "a=x, org/b = y=z")
    assert settings_from([]).named_models == [("a", "x"), ("org/b", "y=z")]
    assert settings_from(["m"]).named_models == []
    monkeypatch.setenv("SOLITON_MODEL", "m")
    assert settings_from(["--model", "c=d"]).model is None


def test_an_admin_key_variable_without_a_key_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOLITON_ADMIN_KEYS", " ,")
    with pytest.raises(CommandError, match="SOLITON_ADMIN_KEYS is set but holds no key"):
        settings_from([])
