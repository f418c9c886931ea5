from __future__ import annotations

from pathlib import Path

import pytest

from watermark_source.errors import UsageError
from watermark_source.group_store.local_members import driver_folder


def test_the_sources_of_a_driver_meet_in_a_private_folder_among_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path / 'blockmgr-1'},{tmp_path / 'blockmgr-2'}")
    folder = driver_folder()
    assert folder == tmp_path / "blockmgr-1" / "watermark-source"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert driver_folder() == folder


def test_without_such_a_folder_it_is_one_of_this_user_and_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert str(driver_folder()).startswith(f"{tmp_path}/watermark-source-")


def test_a_folder_that_others_can_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    (tmp_path / "watermark-source").mkdir(mode=0o755)
    with pytest.raises(UsageError, match="is not private"):
        driver_folder()


def test_a_link_that_leads_elsewhere_is_refused_though_what_it_leads_to_is_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Temporary folders are everybody's: someone else may have put it there, and it leads to this user's keys."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "local"))
    (tmp_path / "keys").mkdir(mode=0o700)
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "watermark-source").symlink_to(tmp_path / "keys")
    with pytest.raises(UsageError, match="is not private"):
        driver_folder()
    (tmp_path / "local" / "watermark-source").unlink()
    (tmp_path / "local" / "watermark-source").write_text("")
    with pytest.raises(UsageError, match="is not private"):
        driver_folder()
