from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from watermark_source.monitor.source_status import RowTotals, Status
from watermark_source.monitor.status_reasons import AlignmentWait, Behind, Facts, reason

SLOWEST = "orders-3"
IDLED = "20 min behind the watermark (it was idle): its rows up to there are late"


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({"lag": 12_000}, "behind by 12 000 records"),
        ({"lag": 1}, "behind by 1 record"),
        ({"lag": 5, "watermark": None}, "behind by 5 records"),
        ({"lag": 5, "waits_for_budget": True}, "behind by 5 records; slower splits go first (maxOffsetsPerTrigger)"),
        ({"lag": None}, "its end is unknown yet"),
        ({"lag": None, "has_more": True}, "has more to read"),
        ({"watermark": None, "holds_back": True}, "no record seen yet; holds the watermark"),
        ({"watermark": None}, "no record seen yet"),
        ({"watermark": None, "reading": True, "holds_back": True}, "its first records are being read"),
        ({"watermark": None, "resumed": True}, "no record seen since the query was started"),
        ({}, "caught up"),
        (
            {"lag": 5, "hidden_ahead": True},
            "behind by 5 records; its next rows cannot be read ahead (see the log), and it holds the watermark",
        ),
        ({"quiet": 0, "idle_timeout": 30_000}, "caught up"),
        ({"quiet": 12_000}, "nothing to read for 12 s"),
        ({"quiet": 12_000, "idle_timeout": 30_000}, "nothing to read for 12 s; idle after 30 s"),
        ({"quiet": 12_000, "holds_back": True}, "nothing to read for 12 s; never idle without idleTimeout"),
    ],
)
def test_an_active_split_says_what_it_is_waiting_for(facts: dict[str, Any], sentence: str) -> None:
    known: dict[str, Any] = {"lag": 0, "watermark": 1_000} | facts
    assert reason(Facts(status=Status.ACTIVE, **known)) == sentence


@pytest.mark.parametrize(
    ("behind", "sentence"),
    [
        (
            Behind(1_200_000, was_idle=True, is_left_out=False),
            f"{IDLED}; the watermark waits for it, with idleReturn=pass it would not",
        ),
        (
            Behind(1_200_000, was_idle=True, is_left_out=True),
            f"{IDLED}, and the watermark advances without it (idleReturn=pass)",
        ),
        (
            Behind(5_000, was_idle=False, is_left_out=False),
            "5 s behind the watermark: its rows up to there are late; the watermark waits for it",
        ),
    ],
)
def test_a_split_behind_the_watermark_says_that_its_rows_are_late_and_why(behind: Behind, sentence: str) -> None:
    facts = Facts(status=Status.ACTIVE, lag=0, watermark=1_000, behind=behind)
    assert reason(facts) == f"caught up; {sentence}"
    assert reason(replace(facts, lag=7)) == f"behind by 7 records; {sentence}"


@pytest.mark.parametrize(
    ("rows", "facts", "sentence"),
    [
        (RowTotals(read=20, undated=20), {}, "20 records, none with an event time"),
        (RowTotals(read=1, undated=1), {"reading": True}, "1 record, none with an event time"),
        (RowTotals(read=20, future=20), {}, "20 records, all too far in the future (maxFutureSkew)"),
        (
            RowTotals(read=20, undated=12, future=8),
            {},
            "20 records: 12 without an event time, 8 too far in the future (maxFutureSkew)",
        ),
        (RowTotals(read=20), {"by_marks": True}, "20 records, none with a watermark (watermarkColumn)"),
        (
            RowTotals(read=20, future=3),
            {"by_marks": True},
            "20 records, none with a watermark (watermarkColumn) but 3 too far in the future (maxFutureSkew)",
        ),
    ],
)
def test_a_split_without_a_watermark_says_what_its_records_lack(
    rows: RowTotals, facts: dict[str, Any], sentence: str
) -> None:
    known: dict[str, Any] = {"lag": 0, "watermark": None, "rows": rows} | facts
    assert reason(Facts(status=Status.ACTIVE, **known)) == sentence
    held = reason(Facts(status=Status.ACTIVE, holds_back=True, **known))
    assert held.startswith(f"{sentence}; holds the watermark")
    behind = reason(Facts(status=Status.ACTIVE, **(known | {"lag": 3})))
    assert behind == f"behind by 3 records; {sentence} so far"


def test_a_split_whose_records_have_no_event_time_says_when_it_stops_holding_the_watermark() -> None:
    facts = Facts(status=Status.ACTIVE, lag=0, watermark=None, holds_back=True, rows=RowTotals(read=20, undated=20))
    held = "20 records, none with an event time; holds the watermark"
    assert reason(facts) == f"{held}, and is never idle without idleTimeout"
    assert reason(replace(facts, idle_timeout=30_000)) == f"{held} until it is idle (idleTimeout 30 s)"


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({"quiet": 302_000, "idle_timeout": 30_000}, "nothing to read for 5 min 02 s (idleTimeout 30 s)"),
        ({"quiet": 302_000}, "nothing to read for 5 min 02 s"),
        ({"idle_timeout": 30_000}, "nothing to read (idleTimeout 30 s)"),
        (
            {"quiet": 40_000, "idle_timeout": 30_000, "rows": RowTotals(read=9, undated=9)},
            "nothing with an event time for 40 s (idleTimeout 30 s)",
        ),
    ],
)
def test_an_idle_split_names_the_timeout_it_passed(facts: dict[str, Any], sentence: str) -> None:
    assert reason(Facts(status=Status.IDLE, lag=0, watermark=None, **facts)) == sentence


@pytest.mark.parametrize(
    ("wait", "sentence"),
    [
        (AlignmentWait(SLOWEST, 30_000, ahead=37_000), "37 s ahead of orders-3 (alignmentMaxDrift 30 s)"),
        (AlignmentWait(SLOWEST, 30_000, ahead=30_000), "next record over 30 s ahead of orders-3 (alignmentMaxDrift)"),
        (AlignmentWait(SLOWEST, 30_000), "next record over 30 s ahead of orders-3 (alignmentMaxDrift)"),
        (AlignmentWait("users", None), "reads nothing before its alignment group may begin: waits for users"),
        (None, "waits for its alignment group"),
    ],
)
def test_a_paused_split_names_whom_it_waits_for(wait: AlignmentWait | None, sentence: str) -> None:
    assert reason(Facts(status=Status.PAUSED, lag=9, watermark=1_000, wait=wait)) == sentence


@pytest.mark.parametrize(
    ("status", "sentence"),
    [(Status.FINISHED, "read to the end of this run"), (Status.UNKNOWN, "no answer about its log")],
)
def test_finished_and_unknown_need_no_further_facts(status: Status, sentence: str) -> None:
    assert reason(Facts(status=status, lag=None, watermark=None)) == sentence


@pytest.mark.parametrize("status", Status)
def test_every_status_has_a_sentence(status: Status) -> None:
    assert reason(Facts(status=status, lag=0, watermark=None))


def test_a_finished_split_without_a_record_holds_the_watermark_still() -> None:
    facts = Facts(status=Status.FINISHED, lag=0, watermark=None, holds_back=True)
    assert reason(facts) == "no record seen yet; holds the watermark"
    assert reason(replace(facts, reading=True)) == "read to the end of this run"
