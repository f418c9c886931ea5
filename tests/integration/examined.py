"""``doctor --kafka`` as a user calls it, and what it states of each check."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from watermark_source.command_line import main

Lines = dict[str, tuple[str, str]]
"""Verdict and text by the name of the check."""
Examined = Callable[..., Lines]


@pytest.fixture
def examined(capsys: pytest.CaptureFixture[str]) -> Examined:
    """The doctor, as a user calls it, with the exit status that it must have."""

    def examine(bootstrap: str, expected: int = 0, **options: Any) -> Lines:
        given = {"kafka.bootstrap.servers": bootstrap, **options}
        words = [word for name, value in given.items() for word in (f"--{name}", str(value))]
        assert main(["doctor", "--kafka", *words]) == expected
        *lines, total = capsys.readouterr().out.splitlines()
        assert total.startswith(f"{len(lines)} checks: ")
        return {line[9:33].strip(): (line[:9].strip(), line[34:]) for line in lines}

    return examine
