"""What brokers say of leaders, in whatever order it comes."""

from __future__ import annotations

from pyspark_aligned_kafka.cluster.metadata import Leader, Leaders, Topic
from watermark_source.planning.split import Split

SPLIT = Split("t", 0)


def learned(leaders: Leaders, leader: Leader | None) -> Leader | None:
    leaders.learn({"t": Topic({0: leader}, internal=False)})
    return leaders.of(SPLIT)


def test_an_older_epoch_does_not_replace_a_newer_one() -> None:
    leaders = Leaders()
    assert learned(leaders, Leader(1, 4)) == Leader(1, 4)
    assert learned(leaders, Leader(2, 5)) == Leader(2, 5)
    # From the broker that was its leader, cut off from the others.
    assert learned(leaders, Leader(1, 4)) == Leader(2, 5)
    # The topic was made again: who leads it refuses the old epoch.
    leaders.doubt({SPLIT})
    assert learned(leaders, Leader(1, 0)) == Leader(1, 0)


def test_a_broker_that_tells_no_epoch_is_believed() -> None:
    leaders = Leaders()
    learned(leaders, Leader(1, 4))
    assert learned(leaders, Leader(2, None)) == Leader(2, None)
    assert learned(leaders, Leader(1, 1)) == Leader(1, 1)


def test_what_was_there_is_known_until_it_has_gone() -> None:
    leaders = Leaders()
    assert not leaders.existed({"t", SPLIT})
    assert learned(leaders, None) is None
    assert leaders.existed({"t"})
    assert leaders.existed({SPLIT})
    leaders.doubt({SPLIT})
    assert leaders.existed({SPLIT})
    leaders.forget({"t"})
    assert not leaders.existed({"t", SPLIT})
