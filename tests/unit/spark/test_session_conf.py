"""The settings that are recommended: the local-only one on request, and a user's own Java options kept."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from watermark_source import recommended_conf
from watermark_source.spark.session_conf import CHECKPOINT_MANAGER, JAVA_OPTIONS, UNIX_SOCKETS

PAGE = Path(__file__).parents[3] / "docs" / "speed.md"


def test_the_manager_of_local_checkpoints_comes_on_request_alone() -> None:
    assert CHECKPOINT_MANAGER not in recommended_conf()
    assert recommended_conf(local_checkpoints=True).keys() - recommended_conf().keys() == {CHECKPOINT_MANAGER}


def test_java_options_of_the_user_come_first_and_stay() -> None:
    for name in JAVA_OPTIONS:
        assert recommended_conf(java_options="-Xss4m")[name] == f"-Xss4m {recommended_conf()[name]}"


def test_unix_sockets_are_left_out_where_python_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert recommended_conf()[UNIX_SOCKETS] == "true"
    monkeypatch.delattr(socket, "AF_UNIX")
    assert UNIX_SOCKETS not in recommended_conf()


def test_every_setting_has_its_measurement_on_the_page_about_speed() -> None:
    page = PAGE.read_text(encoding="utf-8")
    settings = recommended_conf(local_checkpoints=True)
    flags = re.findall(r"-D\S+", settings[JAVA_OPTIONS[0]])
    assert [each for each in (*settings, *flags, settings[CHECKPOINT_MANAGER]) if each not in page] == []
