"""A topic that never had a row holds no one in its group, and what it brings at last is on time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from tests.integration.kafka_streams import KafkaStreams, wait_for
from watermark_source import follow_watermark

pytestmark = [pytest.mark.service, pytest.mark.spark]

_logger = logging.getLogger(__name__)
BOUND = 5.0


@pytest.mark.parametrize("follows", ["group", "nothing"])
@pytest.mark.long("test_a_source_whose_splits_are_all_idle_goes_on_with_the_others_and_never_beyond")
def test_an_outer_join_with_a_silent_topic_goes_on(
    streams: KafkaStreams, new_topic: Callable[..., str], follows: str, request: pytest.FixtureRequest
) -> None:
    busy, silent = new_topic(2), new_topic(1)
    common: dict[str, Any] = {"idleTimeout": "2 seconds", "maxOutOfOrderness": f"{BOUND} seconds"}
    if follows == "group":
        common.update(alignmentGroup="join", idleFollows="group")
    streams.write(busy, {0: [0], 1: [0]})
    left = follow_watermark(streams.source(subscribe=busy, sourceName="busy", **common))
    right = follow_watermark(streams.source(subscribe=silent, sourceName="silent", **common))
    on = F.expr("l = r AND rt BETWEEN lt AND lt + INTERVAL 1 SECOND")
    second_of = "CAST(unix_millis(event_time) / 1000 - 1699999980 AS INT)"
    running = streams.start(
        left.selectExpr("event_time AS lt", f"{second_of} AS l")
        .join(right.selectExpr("event_time AS rt", f"{second_of} AS r"), on, "leftOuter")
        .select("l", "r")
    )

    def bring(begin: int, end: int) -> None:
        for second in range(begin, end):
            streams.write(busy, {0: [second], 1: [second]})
            time.sleep(0.25)

    bring(1, 30)
    if follows == "nothing":
        assert running.rows() == []
        return
    wait_for(lambda: len(running.rows()) >= 30, running.query)
    assert {r for _, r in running.rows()} == {None}
    # It speaks again and again, each time of now, and on time.
    waited, second = [], 29
    for _ in range(request.config.getoption("--wakes")):
        streams.write(silent, {0: [second]})
        wait_for(lambda: (second, second) in running.rows(), running.query)  # noqa: B023 - called at once
        bring(second + 1, second + 1 + 10)
        begun = time.monotonic()
        # What is a bound behind the newest row has found no one; its watermark is a millisecond behind.
        passed = second + 10 - int(BOUND) - 2
        wait_for(lambda: (passed, None) in running.rows(), running.query)  # noqa: B023
        waited.append(time.monotonic() - begun)
        second += 10
    _logger.info("outer rows: median %.2f s, longest %.2f s of %d", median(waited), max(waited), len(waited))
    assert running.dropped == 0
