"""What the profile reads of a topic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

import pytest

from pyspark_aligned_kafka import profile
from pyspark_aligned_kafka.source import KafkaBatch
from watermark_source.contract.read_batch import ReadBatch
from watermark_source.planning.ranges_per_task import OpenRange
from watermark_source.planning.split import Split, SplitRange

OLD, NEW = (SplitRange(Split("t", number), 0, 1_000) for number in range(2))


@pytest.mark.parametrize("rows", [None, 100])
def test_records_that_retention_deletes_meanwhile_are_no_loss(
    rows: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Reader:
        def read(
            self, ranges: Sequence[SplitRange], *, from_beginning: Set[Split] = frozenset()
        ) -> Iterator[ReadBatch]:
            assert [each.split for each in ranges] == [OLD.split, NEW.split]
            assert from_beginning == {OLD.split}
            return iter(())

    late = [OpenRange(OLD, late_start=True, late_end=True), OpenRange(NEW, late_start=False, late_end=True)]
    monkeypatch.setattr(KafkaBatch, "late_ranges", lambda _: late)
    monkeypatch.setattr(profile, "range_reader", lambda *_: Reader())
    assert not list(profile.event_times({"kafka.bootstrap.servers": "localhost:1", "subscribe": "t"}, rows))
