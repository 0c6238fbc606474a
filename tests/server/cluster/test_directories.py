"""Directories of replicas: each has its own, and two clusters never share one."""

from pathlib import Path

import pytest

from server.cluster.directories import DirectoryInUseError, taken_place


def test_replicas_have_their_own_and_find_them_again(tmp_path: Path) -> None:
    first, second = (taken_place(tmp_path, cluster="one") for _ in range(2))
    assert first.name != second.name
    assert {first.path, second.path} <= set(tmp_path.iterdir())
    names = {first.name, second.name}
    first.close()
    second.close()
    again = [taken_place(tmp_path, cluster="two") for _ in range(3)]
    assert names < {place.name for place in again}
    for place in again:
        place.close()


def test_another_cluster_is_refused_while_one_has_it(tmp_path: Path) -> None:
    place = taken_place(tmp_path, cluster="one")
    with pytest.raises(DirectoryInUseError, match=r"in use by another cluster: give each cluster"):
        taken_place(tmp_path, cluster="two")
    place.close()
    again = taken_place(tmp_path, cluster="two")
    assert again.name == place.name
    again.close()


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(FileExistsError):
        taken_place(path, cluster="one")
