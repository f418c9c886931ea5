"""Each decision record has a subject, a status and a date, and the index lists all records."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.generate import DECISIONS, DECISIONS_PAGE, decisions_page, record_head

RECORDS = sorted(DECISIONS.glob("[0-9]*.md"))
each_record = pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.stem)


@each_record
def test_a_record_has_a_subject_a_status_and_a_date(record: Path) -> None:
    number, subject, status, _ = record_head(record)
    assert f"{int(number):04d}" == record.name[:4]
    assert not subject.endswith(".")
    assert re.fullmatch(r"accepted(, [\w ]+ superseded by \d+)?|superseded by \d+", status)
    for other in re.findall(r"superseded by (\d+)", status):
        assert list(DECISIONS.glob(f"{int(other):04d}-*.md"))


def test_a_record_without_a_status_is_refused(tmp_path: Path) -> None:
    record = tmp_path / "0007-subject.md"
    record.write_text("# 7. Subject\n\n**Context.** None.\n", encoding="utf-8")
    with pytest.raises(ValueError, match="Status: accepted"):
        record_head(record)


def test_the_index_lists_every_record() -> None:
    assert DECISIONS_PAGE.read_text(encoding="utf-8") == decisions_page(), "run: python docs/generate.py"
    assert [line.count("|") for line in decisions_page().splitlines() if line.startswith("| ")] == [5] * (
        1 + len(RECORDS)
    )


def test_each_number_is_used_once() -> None:
    numbers = [record.name[:4] for record in RECORDS]
    assert len(set(numbers)) == len(numbers)
