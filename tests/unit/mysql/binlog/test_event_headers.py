"""Events of recorded binlogs: where they lie, and what is refused."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

from pyspark_mysql_cdc_wm.binlog.event_headers import POSITION, STOP, TYPE, EventType
from pyspark_mysql_cdc_wm.binlog.wire import PADDING, checksum, padded
from tests.unit.mysql.compiled_late import compiled_late
from tests.unit.mysql.event_survey import EventSurvey
from tests.unit.mysql.recordings import MAGIC_SIZE, content, surveyed
from watermark_source.errors import CorruptDataError, InternalError
from watermark_source.machine_code.native import address_of

_START_ENCRYPTION = 164
RECORDINGS = ["full", "minimal", "no_checksum", "compressed", "tagged", "mariadb"]


@compiled_late("int64(uint8[::1], int64, int64)")
def _sum(array: Any, start: Any, stop: Any) -> Any:
    return checksum(address_of(array), start, stop)


@pytest.mark.parametrize("size", [*range(40), 1000, 4099])
def test_checksum_is_that_of_zlib(size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    assert _sum(padded(b"abc" + data), 3, 3 + size) == zlib.crc32(data)


@pytest.mark.parametrize("name", RECORDINGS)
def test_every_event_is_found_and_the_last_ends_with_the_file(name: str) -> None:
    _, events = surveyed(name)
    assert events[0, TYPE] == EventType.FORMAT_DESCRIPTION
    assert events[-1, POSITION] == MAGIC_SIZE + len(content(name))
    assert np.count_nonzero(events[:, TYPE] == EventType.TABLE_MAP) == (
        0 if name == "compressed" else 5 if name == "full" else 3
    )
    tail = 0 if name == "no_checksum" else 4
    assert events[-1, STOP] == len(content(name)) - tail


def test_an_event_that_is_not_complete_waits_for_its_rest() -> None:
    whole = content("full")
    memory, events = surveyed("full")
    survey = EventSurvey(position=MAGIC_SIZE, checksums=False)
    begin = 0
    found = 0
    for stop in range(0, len(whole) + 1, 97):
        step = survey.survey(memory, begin, stop)
        begin = step.stop
        found += len(step.events)
    found += len(survey.survey(memory, begin, len(whole)).events)
    assert found == len(events)
    assert survey.position == MAGIC_SIZE + len(whole)


def test_a_changed_byte_is_noticed_in_every_event() -> None:
    whole = content("full")
    _, events = surveyed("full")
    for stop in events[:, STOP].tolist()[1:]:
        damaged = bytearray(whole)
        damaged[stop - 1] ^= 1
        memory = padded(bytes(damaged))
        with pytest.raises(CorruptDataError, match="CRC-32"):
            EventSurvey(position=MAGIC_SIZE, checksums=False).survey(memory, 0, len(whole))


def test_checks_can_be_left_out() -> None:
    damaged = bytearray(content("full"))
    damaged[-6] ^= 1
    survey = EventSurvey(position=MAGIC_SIZE, checksums=False, check=False)
    assert survey.survey(padded(bytes(damaged)), 0, len(damaged)).stop == len(damaged)


def test_an_event_that_is_missing_is_noticed() -> None:
    whole = content("full")
    _, events = surveyed("full")
    second, third = int(events[1, STOP]) + 4, int(events[2, STOP]) + 4
    torn = whole[:second] + whole[third:]
    with pytest.raises(CorruptDataError, match="not where the events before it lead"):
        EventSurvey(position=MAGIC_SIZE, checksums=False).survey(padded(torn), 0, len(torn))


def test_what_a_file_begins_with_and_a_dump_within_it_repeats_takes_no_room() -> None:
    whole = content("mariadb")
    _, events = surveyed("mariadb")
    at = int(events[5, STOP]) + 4
    key = b"\1" + (1).to_bytes(4, "little") + bytes(12)
    # As a server sends it that encrypts its binlog (encrypt_binlog).
    head = bytes(4) + bytes([_START_ENCRYPTION]) + (1).to_bytes(4, "little")
    sent = _repeated(whole[: int(events[0, STOP]) + 4]) + _repeated(head + bytes(8) + b"\x80\0" + key + bytes(4))
    survey = EventSurvey(position=MAGIC_SIZE + at, checksums=False)

    found = survey.survey(padded(sent + whole[at:]), 0, len(sent) + len(whole) - at)

    assert found.events[:, TYPE].tolist()[:2] == [EventType.FORMAT_DESCRIPTION, _START_ENCRYPTION]
    assert found.events[2:, POSITION].tolist() == events[6:, POSITION].tolist()


def _repeated(event: bytes) -> bytes:
    """Return an event with its size, no position, and the checksum of that."""
    made = event[:9] + len(event).to_bytes(4, "little") + bytes(4) + event[17:-4]
    return made + zlib.crc32(made).to_bytes(4, "little")


def test_a_size_that_cannot_be_is_refused() -> None:
    damaged = bytearray(content("full"))
    damaged[9:13] = (18).to_bytes(4, "little")
    with pytest.raises(CorruptDataError, match="impossible event size"):
        EventSurvey(position=MAGIC_SIZE, checksums=False).survey(padded(bytes(damaged)), 0, len(damaged))


def test_memory_without_padding_is_a_bug_of_ours() -> None:
    memory = np.frombuffer(content("full"), np.uint8)
    with pytest.raises(InternalError, match="no padding"):
        EventSurvey(checksums=False).survey(memory, 0, memory.size)
    assert PADDING == 8
