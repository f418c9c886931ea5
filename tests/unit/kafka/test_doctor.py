"""What the doctor advises of the settings of topics."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pyspark_aligned_kafka.cluster.metadata import CREATE_TIME, TIMESTAMP_TYPE
from pyspark_aligned_kafka.doctor import _timestamp_type
from pyspark_aligned_kafka.options import kafka_options


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ({}, "Set maxFutureSkew"),
        ({"maxFutureSkew": "10 minutes"}, ""),
        ({"watermarkStrategy": "none"}, ""),
        ({"watermarkStrategy": "punctuated", "watermarkColumn": "header:watermark"}, ""),
        ({"watermarkStrategy": "ingestion"}, "set maxWatermarkLag"),
        ({"watermarkStrategy": "ingestion", "eventTimeColumn": "value:$.at"}, ""),
    ],
)
def test_times_of_producers_are_a_caution_where_they_move_the_watermark(given: dict[str, str], advice: str) -> None:
    options = kafka_options.parse({"kafka.bootstrap.servers": "broker:9092", "subscribe": "orders", **given})
    cluster = SimpleNamespace(options=options, settings={"orders": {TIMESTAMP_TYPE: CREATE_TIME}})
    found = str(_timestamp_type(cast(Any, cluster)))
    assert advice in found
    assert advice or "et max" not in found
