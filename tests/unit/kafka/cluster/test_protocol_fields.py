"""Fields of Kafka's protocol."""

from __future__ import annotations

import pytest

from pyspark_aligned_kafka.cluster.protocol_fields import FieldReader


def test_a_number_of_ten_bytes_is_read_and_one_that_goes_on_is_refused() -> None:
    assert FieldReader(b"\x80" * 9 + b"\1", flexible=True).count() == 2**63 - 1
    for more in (b"\x80\0", b"\xff" * 1_000):
        with pytest.raises(ValueError, match="more than ten bytes"):
            FieldReader(b"\x80" * 9 + more, flexible=True).count()
