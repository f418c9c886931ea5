"""Every line of the threat model names the tests that show it; that they exist is checked for all pages."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs/security.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| what is")]
SENDERS = (
    "Records and schemas",
    "Kafka brokers and MySQL servers",
    "schema registry",
    "progress reports",
    "store",
    "announcements",
    "status page",
    "Files",
)


def test_every_line_of_the_threat_model_names_its_tests() -> None:
    assert len(ROWS) > 25
    for row in ROWS:
        sent, happens, tests = row.strip("| ").split(" | ")
        assert sent
        assert happens
        assert re.fullmatch(r"`test_\w+`(, `test_\w+`)*", tests), row


def test_every_sender_has_its_lines() -> None:
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
    assert len(sections) == len(SENDERS)
    for section, sender in zip(sections, SENDERS, strict=True):
        assert sender in section.splitlines()[0]
        assert any(line in ROWS for line in section.splitlines())
