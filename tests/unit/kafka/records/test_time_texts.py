"""Texts of moments, held against datetime and exact decimals."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from decimal import ROUND_FLOOR, Decimal, localcontext

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyspark_aligned_kafka.records.event_time_choice import Format
from pyspark_aligned_kafka.records.time_texts import END_MICROS, FIRST_MICROS, MAY_BE_DATE, MomentReader

YEARS = datetime.fromisoformat("0001-01-02"), datetime.fromisoformat("9999-12-30")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROS = {Format.SECONDS: 6, Format.MILLIS: 3, Format.MICROS: 0, Format.NANOS: -3}


def seen_in(text: str, written: Format = Format.AUTO) -> tuple[int, int]:
    """Return what is written for one text: its microseconds, and why it has none."""
    ((micros, wrong),) = _read([text], written)
    return micros, wrong


def read(texts: Sequence[str], written: Format = Format.AUTO) -> list[int | None]:
    return [None if wrong else micros for micros, wrong in _read(texts, written)]


def _read(texts: Sequence[str], written: Format) -> list[tuple[int, int]]:
    encoded = [text.encode() for text in texts]
    data = np.frombuffer(bytearray(b"".join(encoded) or b"\0"), np.uint8)
    sizes = np.array([len(text) for text in encoded], np.int64)
    micros, wrong = MomentReader(written).read(data, np.cumsum(sizes) - sizes, sizes)
    return list(zip(micros.tolist(), wrong.tolist(), strict=True))


def micros_of(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


@given(st.datetimes(*YEARS), st.data())
def test_iso_8601_is_read_as_by_datetime(moment: datetime, data: st.DataObject) -> None:
    zone = data.draw(st.none() | st.integers(-14 * 60, 14 * 60).map(lambda m: timezone(timedelta(minutes=m))))
    reported = moment.replace(tzinfo=zone)
    text = reported.isoformat(sep=data.draw(st.sampled_from("T ")), timespec=data.draw(
        st.sampled_from(["auto", "microseconds", "milliseconds", "seconds", "minutes"])))  # fmt: skip
    meant = datetime.fromisoformat(text)
    expected = micros_of(meant if meant.tzinfo else meant.replace(tzinfo=UTC))
    written = [text, text.replace("+00:00", "Z"), text.replace("T", "t")]
    assert read(written, data.draw(st.sampled_from([Format.AUTO, Format.ISO_8601]))) == [expected] * 3


@given(st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**14), max_value=10**18),
       st.sampled_from(list(MICROS)))  # fmt: skip
@example(Decimal("-0.0001"), Format.NANOS)
@example(Decimal(END_MICROS - 1), Format.MICROS)
@example(Decimal(END_MICROS), Format.MICROS)
def test_numbers_are_read_exactly_and_rounded_down(number: Decimal, written: Format) -> None:
    with localcontext() as exact:
        exact.prec = 60
        micros = int((number * Decimal(10) ** MICROS[written]).to_integral_value(ROUND_FLOOR))
    expected = micros if FIRST_MICROS <= micros < END_MICROS else None
    digits = len(str(abs(number)).replace(".", "").lstrip("0"))
    texts = [str(number), f"{number:f}"]
    if digits <= 18:
        assert read(texts, written) == [expected] * 2


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("1700000000", "2023-11-14T22:13:20"), ("1700000000.5", "2023-11-14T22:13:20.5"),
        ("1.7e9", "2023-11-14T22:13:20"), ("1.7E+9", "2023-11-14T22:13:20"), ("-1e-30", "1969-12-31T23:59:59.999999"),
        ("1e-30", "1970-01-01"),
        # The first of each unit, and the last.
        ("100000000000", "1973-03-03T09:46:40"), ("99999999999", "5138-11-16T09:46:39"),
        ("100000000000000", "1973-03-03T09:46:40"), ("99999999999999", "5138-11-16T09:46:39.999"),
        ("100000000000000000", "1973-03-03T09:46:40"), ("99999999999999999", "5138-11-16T09:46:39.999999"),
        ("0001-01-01", "0001-01-01"), ("9999-12-31T23:59:59.999999", "9999-12-31T23:59:59.999999"),
        ("1700000000123", "2023-11-14T22:13:20.123"), ("1700000000123456", "2023-11-14T22:13:20.123456"),
        ("1700000000123456789", "2023-11-14T22:13:20.123456"),
        ("17000000001234567890e-1", "2023-11-14T22:13:20.123456"),
        ("+1700000000", "2023-11-14T22:13:20"), ("0", "1970-01-01"), ("-1", "1969-12-31T23:59:59"),
        ("0000000000000000000000001700000000", "2023-11-14T22:13:20"), ("2024-02-29", "2024-02-29"),
        ("2024-01-01T00:00:00,25+0530", "2023-12-31T18:30:00.25"), ("2024-01-01T00:00:00-01", "2024-01-01T01:00:00"),
        ("2024-01-01 10:00:00 UTC", "2024-01-01T10:00:00"), ("2024-01-01T10:00:00.5gmt", "2024-01-01T10:00:00.5"),
        ("2024-01-01 10:00:00 +0200", "2024-01-01T08:00:00"), ("2024-01-01T10:00 Z", "2024-01-01T10:00:00"),
        ("20240101T100000Z", "2024-01-01T10:00:00"), ("20240229t1030", "2024-02-29T10:30:00"),
        ("20240101T100000.25+0100", "2024-01-01T09:00:00.25"),
        # A leap second is the next one, and hour 24 the next day.
        ("2016-12-31T23:59:60Z", "2017-01-01"), ("2016-12-31T23:59:60.25", "2017-01-01T00:00:00.25"),
        ("2017-01-01T05:29:60+05:30", "2017-01-01"), ("2024-02-28T24:00:00", "2024-02-29"),
        ("2024-02-28 24:00", "2024-02-29"), ("2024-02-28T24:00:00.000-08:00", "2024-02-29T08:00:00"),
        # Digits that are no date.
        ("20241301", "1970-08-23T06:35:01"), ("202405322030", "1976-05-31T15:42:02.030000"),
        ("2024050710301", "2034-02-20T12:18:30.301000"), ("-20240507", "1969-05-11T17:38:13"),
        # A date of the year 1715, and the epochs of today.
        ("1715072400", "2024-05-07T09:00:00"), ("1715072400123456", "2024-05-07T09:00:00.123456"),
        ("1800010100", "2027-01-15T10:48:20"), ("1899123123", "2030-03-07T14:12:03"),
        ("2024-01-01T00:00:00.1234567891Z", "2024-01-01T00:00:00.123456"),
    ],
)  # fmt: skip
def test_what_auto_takes_a_text_for(text: str, moment: str) -> None:
    expected = micros_of(datetime.fromisoformat(moment).replace(tzinfo=UTC))
    assert read([text]) == [expected]


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "x", "-", "+", ".", "1.", ".5", "1e", "1e+", "1e400", "1e-400x", "0x10", "1_000", "--1", "1.2.3", "1 ",
        "2024-1-01", "2023-02-29", "2024-13-01", "2024-00-10", "2024-01-32",
        "1d9", "0000-01-01", "24-01-01",
        "2024-01-01T", "2024-01-01T24:00:01", "2024-01-01T24:01:00", "2024-01-01T24:00:00.1",
        "2024-01-01T25:00:00", "2024-01-01T23:59:61", "2024-01-01T23:59:60+01:00", "2024-01-01T10",
        "2024-01-01T10:60", "2024-01-01T10:00:60",
        "2024-01-01X10:00",
        "2024-01-01T10:00:00.", "2024-01-01T10:00:00+", "2024-01-01T10:00:00+1", "2024-01-01T10:00:00+24:00",
        "2024-01-01T10:00:00ZZ", "2024-01-01T10:00:00 ", "2024-01-01T10:00:00  Z", "2024-01-01T10:00:00 UT",
        "2024-01-01T10:00:00XTC", "20240101T", "20240101T10", "20240101 1000", "20240101T10:00", "2024-01-01T1000",
        "2024-0101T10:00", "20241301T1000", "20240101T1000006", "Mon, 32 Nov 1994 08:49:37 GMT",
        "Mon, 06 Nox 1994 08:49:37 GMT", "06 Nov 94 08:49:37 GMT", "Sun, 06 Nov 1994", "Sun,06 Nov 1994 08:49:37 GMT",
        "06-Nov-1994 08:49:37", "2024/01/01", "99999999999999999999999999",
        "9223372036854775808e9",
    ],
)  # fmt: skip
def test_what_is_no_moment(text: str) -> None:
    assert read([text]) == [None]
    assert read([text], Format.ISO_8601) == [None]


DATES = [
    "20240507", "19700101", "99991231", "00010101", "202405071030", "20240507103015", "20240507103015.25",
    "20161231235960", "20240507103015123",
    # With an hour alone, and with other fractions of a second.
    "2024050710", "1901010100", "202405071030151", "2024050710301512", "202405071030151234", "20240507103015123456",
    "202405071030151234567", "99991231235959999999",
    # Other ways to write the number.
    "2.0240507E7", "2.0240507e+07", "20240507e0", "202405070e-1", "+20240507", "020240507", "+0020240507", "20240507.0",
    "2.02405071030E11", "2.024050710E9", "2.0240507103015E13",
]  # fmt: skip


@pytest.mark.parametrize("text", DATES)
def test_digits_of_a_date_are_no_moment_unless_the_format_is_named(text: str) -> None:
    assert seen_in(text) == (0, MAY_BE_DATE)
    assert seen_in(text, Format.NANOS) == (int(Decimal(text)) // 1_000, 0)
    assert seen_in(f"x{text}") == seen_in(f"{text} ") == (0, 1)


@pytest.mark.parametrize("size", [10, 16])
def test_epochs_of_the_years_until_2030_are_no_dates(size: int) -> None:
    """They begin with 1000 to 1899: no date of data that is read now."""
    begin, step = 10 ** (size - 1), 10 ** (size - 7) + 1
    numbers = list(range(begin, 19 * 10 ** (size - 2), step))
    unit = 10 ** (16 - size)
    assert read([str(each) for each in numbers]) == [each * unit for each in numbers]


@pytest.mark.parametrize("year", [1973, 1990, 2001])
def test_milliseconds_of_twelve_digits_are_of_their_year_though_they_might_be_a_date(year: int) -> None:
    """Except for August of 1975 to August of 1976, which begin with 18, 19, 20 or 21."""
    begin = micros_of(datetime(year, 6, 1, tzinfo=UTC)) // 1_000
    moments = [begin + n * 60_000 for n in range(20_000)]
    assert read([str(each) for each in moments]) == [each * 1_000 for each in moments]


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("Sun, 06 Nov 1994 08:49:37 GMT", "1994-11-06T08:49:37"), ("6 nov 1994 08:49", "1994-11-06T08:49:00"),
        ("Thu, 29 Feb 2024 23:30:00 -0100", "2024-03-01T00:30:00"),
    ],
)  # fmt: skip
def test_the_times_of_http_and_mail_are_read_by_auto_alone(text: str, moment: str) -> None:
    assert read([text]) == [micros_of(datetime.fromisoformat(moment).replace(tzinfo=UTC))]
    assert read([text], Format.ISO_8601) == [None]


@pytest.mark.parametrize(
    ("written", "text", "moment"),
    [
        (Format.DAYS, "19675", "2023-11-14"), (Format.DAYS, "-1", "1969-12-31"),
        (Format.DAYS, "0.5", None),
        (Format.DAYS, "2932896", "9999-12-31"),
        (Format.DAYS, "2932897", None), (Format.DAYS, "1700000000000", None), (Format.DAYS, "9e17", None),
        (Format.DAYS, "2024-01-01", None),
        (Format.TICKS, "638355968001234567", "2023-11-14T22:13:20.123456"), (Format.TICKS, "0", "0001-01-01"),
        (Format.TICKS, "3155378975999999999", "9999-12-31T23:59:59.999999"), (Format.TICKS, "-1", None),
        (Format.FILETIME, "133444736000000000", "2023-11-14T22:13:20"), (Format.FILETIME, "1e30", None),
    ],
)  # fmt: skip
def test_days_and_the_ticks_of_windows_and_net_are_read_where_they_are_named(
    written: Format, text: str, moment: str | None
) -> None:
    expected = None if moment is None else micros_of(datetime.fromisoformat(moment).replace(tzinfo=UTC))
    assert read([text], written) == [expected]
    if text.lstrip("-").isdigit():
        numbers, present = np.array([int(text)], np.int64), np.ones(1, np.bool_)
        micros, wrong = MomentReader(written).of_numbers(numbers, present)
        assert (None if wrong[0] else int(micros[0])) == expected


def test_a_number_is_no_iso_8601_and_a_date_no_number() -> None:
    assert read(["1700000000", "2024-01-01"], Format.ISO_8601)[0] is None
    assert read(["1700000000", "2024-01-01"], Format.MILLIS) == [1_700_000_000_000, None]


@given(st.binary(max_size=80), st.sampled_from(list(Format)))
def test_any_bytes_are_a_moment_or_none(raw: bytes, written: Format) -> None:
    data = np.frombuffer(bytearray(raw or b"\0"), np.uint8)
    at, sizes, escaped = np.zeros(2, np.int64), np.array([len(raw)] * 2), np.zeros(2, np.bool_)
    micros, wrong = MomentReader(written).read(data, at, sizes, escaped)
    assert all(bad or FIRST_MICROS <= found < END_MICROS for found, bad in zip(micros, wrong, strict=True))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (rb"\u0031\u0030", 10),
        (rb"1970\u002d01-01", 0),
        # Their last bytes alone would be a digit.
        (rb"\u0131", None),
        (rb"1\u0130", None),
        (rb"\u002d\u0031", -1),
        (b"0" * 63 + rb"\u0031", 1),
        (b"0" * 64 + rb"\u0031", None),
    ],
)
def test_texts_with_escapes_are_read_without_them(text: bytes, seconds: int | None) -> None:
    data = np.frombuffer(bytearray(text), np.uint8)
    micros, wrong = MomentReader(Format.AUTO).read(
        data, np.zeros(1, np.int64), np.array([len(text)]), np.ones(1, np.bool_)
    )
    assert (int(micros[0]), int(wrong[0])) == ((0, 1) if seconds is None else (1_000_000 * seconds, 0))


@pytest.mark.parametrize(
    ("text", "millis"),
    [("429918007904436226", 1_640_007_049_196), ("4.29918007904436226e17", 1_640_007_049_196), ("0", 0), ("262144", 1)],
)
def test_a_timestamp_of_tidbs_oracle_is_its_milliseconds(text: str, millis: int) -> None:
    assert seen_in(text, Format.TSO) == (1_000 * millis, 0)


@pytest.mark.parametrize("text", ["", "x", "1.5", "1e30", "2026-01-01"])
def test_what_is_no_whole_number_is_no_timestamp_of_the_oracle(text: str) -> None:
    assert seen_in(text, Format.TSO)[1] == 1
