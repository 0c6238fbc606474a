"""How scripts/wheels.py reads and writes text; `make wheels` builds the wheels themselves."""

from pathlib import Path

import pytest

from engine import Engine
from scripts.wheel import serve
from scripts.wheel_trials import fits
from scripts.wheels import TARGETS, found_platform, with_tag
from tests.support.live_server import live_server


def test_the_wheels_are_for_python_3_11_and_later_and_both_machines() -> None:
    assert {target.tag for target in TARGETS} == {
        "cp311-cp311-manylinux_2_28_x86_64",
        "cp312-abi3-manylinux_2_28_x86_64",
        "cp311-cp311-manylinux_2_28_aarch64",
        "cp312-abi3-manylinux_2_28_aarch64",
    }


def test_a_pure_wheel_gets_another_tag() -> None:
    pure = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n\n"
    assert with_tag(pure, "cp313-cp313-linux") == (
        "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp313-cp313-linux\n"
    )


def test_the_platform_is_read_across_lines() -> None:
    report = 'x.whl is consistent\nwith the following platform tag:\n"manylinux_2_17_x86_64".\n'
    assert found_platform(report) == "manylinux_2_17_x86_64"
    with pytest.raises(SystemExit, match="names no platform: nothing of use"):
        found_platform("nothing\nof use")


def test_a_wheel_of_the_stable_abi_fits_later_versions_too() -> None:
    stable, full = (
        f"soliton-0.1.0-{tag}-manylinux_2_28_x86_64.whl" for tag in ("cp312-abi3", "cp311-cp311")
    )
    assert [minor for minor in range(10, 15) if fits(full, minor)] == [11]
    assert [minor for minor in range(10, 15) if fits(stable, minor)] == [12, 13, 14]


def test_the_text_that_wheels_are_tried_with_is_the_source_builds(bundled_engine: Engine) -> None:
    with live_server(bundled_engine) as server:
        assert serve.complete(f"http://127.0.0.1:{server.port}") == serve.EXPECTED


def test_a_trial_of_a_wheel_asks_for_every_file_of_the_page(bundled_engine: Engine) -> None:
    files = {path.name for path in (Path(__file__).parents[2] / "server/api/ui").iterdir()}
    with live_server(bundled_engine) as server:
        assert serve.read_page(server.url) == files - {"index.html"}
