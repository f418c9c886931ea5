"""Which offsets count as those of Spark's own Kafka source."""

from __future__ import annotations

import pytest

from pyspark_aligned_kafka.options.positions import foreign_positions
from watermark_source.planning.split import Split


def test_sparks_own_offset_is_recognised() -> None:
    offset = {"t": {"0": 23, "1": 0}, "u": {"0": 5}}
    assert foreign_positions(offset) == {Split("t", 0): 23, Split("t", 1): 0, Split("u", 0): 5}


@pytest.mark.parametrize(
    "offset",
    [
        {},
        {"t": {}},
        {"v": 1, "source": "aligned-kafka"},
        {"v": 1, "t": {"0": 23}},
        {"t": {"0": -1}},
        {"t": {"0": True}},
        {"t": {"0": 1.5}},
        {"t": {"a": 1}},
        {"t": [0]},
    ],
)
def test_any_other_offset_is_not(offset: dict[str, object]) -> None:
    assert foreign_positions(offset) is None
