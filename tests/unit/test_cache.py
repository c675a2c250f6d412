"""The cache folder is private: what lies in it is loaded and run."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from hipgraphdsl.cache import cache_folder, private_folder, write_whole
from hipgraphdsl.target import CostModel, Target, calibrated, store_costs


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HIPGRAPHDSL_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_cache_folders_are_made_for_their_user_only(folder: Path) -> None:
    before = os.umask(0)
    try:
        assert cache_folder("nvidia") == folder / "nvidia"
    finally:
        os.umask(before)
    assert mode(folder) == mode(folder / "nvidia") == 0o700


@pytest.mark.parametrize("inner", ["", "nvidia"])
@pytest.mark.parametrize("bits", [0o770, 0o702])
def test_cache_folder_that_others_can_write_is_not_used(
    inner: str, bits: int, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / inner).mkdir(parents=True)
    (folder / inner).chmod(bits)
    used = cache_folder("nvidia")
    assert used.parent != folder
    assert mode(used) == 0o700
    assert f"can be written by other users (mode 0{bits:o})" in caplog.text
    assert "HIPGRAPHDSL_CACHE_DIR" in caplog.text
    assert cache_folder("nvidia") == used
    assert len(caplog.records) == 1
    with pytest.raises(PermissionError):
        private_folder("nvidia")


def test_cache_folder_of_another_user_is_not_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    owner = private_folder().stat().st_uid
    if owner == 0:
        try:
            os.chown(folder, 12345, -1)
        except OSError:
            pytest.skip("needs to give a folder to another user")
        owner = 12345
    else:
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert cache_folder() != folder
    assert f"belongs to user {owner}" in caplog.text


def test_cache_folder_that_cannot_be_written_is_not_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    private_folder().chmod(0o500)
    if os.geteuid() == 0:  # root may write everywhere but in a file system that is read-only
        monkeypatch.setattr(os, "access", lambda path, *_, **__: Path(path) != folder)
    used = cache_folder()
    assert used != folder
    assert os.access(used, os.W_OK)
    assert "may not write there" in caplog.text


def test_cache_folder_is_looked_up_without_making_files(folder: Path) -> None:
    before = cache_folder().stat().st_mtime_ns
    os.utime(folder, ns=(before - 10**9, before - 10**9))
    assert cache_folder() == folder
    assert folder.stat().st_mtime_ns == before - 10**9


def test_costs_are_neither_kept_in_nor_read_from_a_folder_that_others_can_write(folder: Path) -> None:
    target = Target.named("cpu")
    store_costs(target, CostModel(node_us=3.0))
    assert calibrated(target).costs.node_us == 3.0
    folder.chmod(0o777)
    assert calibrated(target) == target
    with pytest.raises(PermissionError, match="other users"):
        store_costs(target, CostModel())


def test_a_file_of_the_cache_is_written_whole_or_not_at_all(folder: Path) -> None:
    write_whole(private_folder() / "one", b"1")
    with pytest.raises(OSError):
        write_whole(folder / "no" / "two", b"2")
    assert [path.name for path in folder.iterdir()] == ["one"]
