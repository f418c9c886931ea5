"""What counts of the newest records' batches; the brokers are dictionaries that the tests fill."""

from __future__ import annotations

from collections.abc import Mapping, Set

import pytest

from pyspark_aligned_kafka.cluster.admin import KafkaAdmin
from pyspark_aligned_kafka.cluster.record_batch_headers import BatchHeader
from pyspark_aligned_kafka.driver import KafkaPreview
from watermark_source.errors import UnreachableError
from watermark_source.planning.split import IndexEntry, Split, SplitRange
from watermark_source.planning.watermark import Millis

SPLIT = Split("t", 0)


class Brokers(KafkaAdmin):
    def __init__(self, newest: int, *headers: BatchHeader) -> None:
        self.known = {SPLIT: IndexEntry(newest, Millis(900))}
        self.headers = headers
        self.away = False

    def newest(self, splits: Set[Split]) -> Mapping[Split, IndexEntry]:
        if self.away:
            raise UnreachableError("nobody there")
        return {split: self.known[split] for split in splits}

    def batch_headers(self, offsets: Mapping[Split, int]) -> Mapping[Split, BatchHeader]:
        if self.away:
            raise UnreachableError("nobody there")
        return {s: h for s, at in offsets.items() for h in self.headers if h.first <= at <= h.last}


def header(first: int, last: int, at: int = 900, *, transactional: bool = False, control: bool = False) -> BatchHeader:
    return BatchHeader(first, last, Millis(at), is_transactional=transactional, is_control=control)


def reached(brokers: Brokers, start: int, end: int, *, read_committed: bool = False) -> int | None:
    preview = KafkaPreview(brokers, read_committed=read_committed)
    preview.prepare({SPLIT})
    return preview.reached([SplitRange(SPLIT, start, end)]).get(SPLIT)


def test_the_newest_batch_counts_if_all_of_it_is_in_the_range() -> None:
    assert reached(Brokers(7, header(5, 9)), 5, 10) == 900
    assert reached(Brokers(7, header(5, 9)), 6, 10) is None
    assert reached(Brokers(7, header(5, 9)), 5, 9) is None


def test_of_a_range_that_ends_before_it_the_last_batch_counts() -> None:
    assert reached(Brokers(20, header(5, 9, 700), header(18, 20)), 5, 10) == 700


def test_a_newest_record_that_was_read_before_says_nothing() -> None:
    assert reached(Brokers(3, header(1, 3), header(5, 9, 700)), 5, 10) is None


@pytest.mark.parametrize("read_committed", [False, True])
def test_the_end_of_a_transaction_never_counts_and_a_part_of_one_only_uncommitted(read_committed: bool) -> None:
    assert reached(Brokers(7, header(7, 7, control=True, transactional=True)), 5, 10) is None
    part = reached(Brokers(7, header(5, 9, transactional=True)), 5, 10, read_committed=read_committed)
    assert part == (None if read_committed else 900)


def test_a_header_that_is_newer_than_the_newest_record_is_damaged() -> None:
    assert reached(Brokers(7, header(5, 9, at=901)), 5, 10) is None


def test_a_broker_that_is_away_tells_nothing_and_is_no_error() -> None:
    brokers = Brokers(7, header(5, 9))
    preview = KafkaPreview(brokers, read_committed=False)
    preview.prepare({SPLIT})
    brokers.away = True
    assert preview.reached([SplitRange(SPLIT, 5, 10)]) == {}
    assert preview.highest([SplitRange(SPLIT, 5, 10)]) == {}


def test_the_highest_of_a_range_is_known_only_where_the_newest_record_is_in_it() -> None:
    for newest, known in ((7, 900), (3, None), (12, None)):
        preview = KafkaPreview(Brokers(newest, header(5, 9), header(1, 4), header(10, 14)), read_committed=False)
        assert preview.highest([SplitRange(SPLIT, 5, 10)]).get(SPLIT) == known
