"""Windows that stay open for a cause each: the sentence and the page name it, and they close once it is gone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from services.wait_until import wait_until
from tests.integration.kafka_streams import KafkaStreams, wait_for
from tests.spark.queries import START, Running, at
from watermark_source import StatusPage, data_rows, follow_watermark, why_open
from watermark_source.errors import UsageError
from watermark_source.monitor.open_windows import OpenWindow, WindowVerdict

pytestmark = [pytest.mark.service, pytest.mark.spark]

NewTopic = Callable[..., str]
MINUTE = START + 60_000
"""The end of the first window."""


def minutes(rows: DataFrame) -> DataFrame:
    return rows.groupBy(F.window("event_time", "1 minute").alias("w")).count().select("w.end", "count")


def once_it_has(words: str, running: Running) -> OpenWindow:
    """Return the answer once it has these words."""
    running.settle()
    wait_for(lambda: words in why_open(running.query, MINUTE).sentence, running.query)
    return why_open(running.query, MINUTE)


def test_a_partition_never_used_and_one_that_is_behind_are_named_until_the_window_closes(
    streams: KafkaStreams, new_topic: NewTopic
) -> None:
    topic = new_topic(3)
    streams.write(topic, {0: [0, 130], 1: [0, 30]})
    running = streams.start(minutes(follow_watermark(streams.source(subscribe=topic))))
    found = once_it_has(f"{topic}-1 is 30 s behind, with nothing to read", running)
    assert found.verdict is WindowVerdict.SOURCES
    assert found.sentence.startswith(
        "the window that ends at 2023-11-14 22:14:00 UTC closes when every active partition has passed that time: "
        f"{topic}-0 has; {topic}-1 is 30 s behind, with nothing to read; {topic}-2 has never had a record"
    )
    line = 'to do: to continue without a silent partition, write .option("idleTimeout", "30 seconds")'
    assert line in found.remarks
    # The same from its checkpoint, which does not hold options.
    stored = why_open(streams.checkpoint(running.table), MINUTE)
    assert f"{topic}-0 and {topic}-1 have no watermark yet without the 4 records of the last batch" in stored.sentence
    assert f"{topic}-2 has never had a record" in stored.sentence
    assert any('.option("idleTimeout", "30 seconds"), if the query does not' in remark for remark in stored.remarks)
    assert running.rows() == []

    streams.write(topic, {1: [90], 2: [90]})
    running.settle()
    wait_for(lambda: why_open(running.query, MINUTE).verdict is WindowVerdict.CLOSED, running.query)
    assert running.rows() == [(at(60), 3)]
    running.query.stop()
    assert why_open(running.query, MINUTE).verdict is WindowVerdict.CLOSED
    assert why_open(streams.checkpoint(running.table), MINUTE).verdict is WindowVerdict.CLOSED
    later = why_open(running.query, MINUTE + 120_000)
    assert later.verdict is WindowVerdict.SOURCES
    assert "the query has ended: this is how it was left" in later.remarks


@pytest.mark.long("test_a_partition_never_used_and_one_that_is_behind_are_named_until_the_window_closes")
def test_a_partition_that_its_group_pauses_is_named_with_the_one_it_waits_for(
    streams: KafkaStreams, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    source = streams.source(subscribe=topic, alignmentGroup="g", alignmentMaxDrift="10 seconds")
    streams.write(topic, {0: range(100), 1: [0, 20]})
    running = streams.start(minutes(follow_watermark(source)))
    found = once_it_has("paused by the alignment group", running)
    assert re.search(
        rf"{topic}-0 is (29|30) s behind and paused by the alignment group: .* ahead of {topic}-1 ", found.sentence
    )
    assert f"{topic}-1 is 40 s behind, with nothing to read" in found.sentence
    stored = why_open(streams.checkpoint(running.table), MINUTE)
    assert re.search(
        rf"{topic}-0 is (29|30) s behind and paused by the alignment group: ahead of its ", stored.sentence
    )


@pytest.mark.long("test_a_partition_never_used_and_one_that_is_behind_are_named_until_the_window_closes")
def test_of_two_sources_the_one_that_holds_the_window_is_named_also_after_a_run_that_ended(
    streams: KafkaStreams, new_topic: NewTopic
) -> None:
    topics = {"orders": new_topic(1), "payments": new_topic(1)}
    streams.write(topics["orders"], {0: [0, 90]})
    streams.write(topics["payments"], {0: [0, 30]})
    both = [follow_watermark(streams.source(subscribe=t, sourceName=n)) for n, t in topics.items()]
    query = streams.run(minutes(both[0].union(both[1])), "both")
    words = (
        "closes when every active partition has passed that time in each of 2 sources: of source orders, "
        f"{topics['orders']}-0 has; of source payments, {topics['payments']}-0 is 30 s behind"
    )
    found = why_open(query, MINUTE)
    assert words in found.sentence
    assert f"{topics['payments']}-0 is 30 s behind and read to the end of this run" in found.sentence
    assert any("record with an event time later than 2023-11-14 22:14:00.000 UTC" in r for r in found.remarks)
    stored = why_open(streams.checkpoint("both"), MINUTE)
    assert words in stored.sentence
    # The same run with the missing record.
    streams.write(topics["payments"], {0: [61]})
    streams.run(minutes(both[0].union(both[1])), "both")
    assert why_open(streams.checkpoint("both"), MINUTE).verdict is WindowVerdict.CLOSED
    rows = streams.result("both").collect()
    assert [(row["end"], row["count"]) for row in rows] == [(at(60), 3)]


@pytest.mark.long("test_a_partition_never_used_and_one_that_is_behind_are_named_until_the_window_closes")
def test_a_query_whose_watermark_is_not_the_sources_is_found_out(streams: KafkaStreams, new_topic: NewTopic) -> None:
    """Spark's own takes the highest event time: the rows of the slower partition are late, and dropped."""
    topic = new_topic(2)
    streams.write(topic, {0: [0, 300], 1: [0]})
    rows = data_rows(streams.source(subscribe=topic)).withWatermark("event_time", "0 seconds")
    running = streams.start(minutes(rows))
    end = START + 600_000
    running.settle()
    wait_for(lambda: why_open(running.query, end).verdict is WindowVerdict.UNFOLLOWED, running.query)
    assert "use follow_watermark(stream) instead of withWatermark" in why_open(running.query, end).sentence
    running.query.stop()
    assert why_open(streams.checkpoint(running.table), end).verdict is WindowVerdict.UNFOLLOWED


@pytest.mark.long("test_lines_that_look_at_a_query_print_what_holds_it")
def test_the_page_shows_a_running_query_what_holds_it_and_what_changed(
    streams: KafkaStreams, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    streams.write(topic, {0: [0], 1: [0]})
    with StatusPage(streams.spark, port=0) as page:
        with pytest.raises(UsageError, match=r"StatusPage\(spark, port=0\) for a free port"):
            StatusPage(streams.spark, port=int(page.url.rstrip("/").rpartition(":")[2]))
        running = streams.start(minutes(follow_watermark(streams.source(subscribe=topic, idleTimeout="1 day"))))
        # Each advances in turn, and leaves the other behind.
        for second in (20, 40, 60, 80):
            streams.write(topic, {second // 20 % 2: [second]})
            running.settle()
        found = once_shown(page.url, f"{topic}-1", running)
        (query,) = found["queries"]
        (source,) = query["sources"]
        assert query["name"] == running.table
        assert source["watermark"] == START + 60_000 - 1
        assert query["open"].startswith("windows that end by 2023-11-14 22:13:59.999 UTC close, later ones are open: ")
        assert f"{topic}-1 is 20 s behind, with nothing to read" in (query["open"])
        assert any(f"silent for 1 d, in 23 h 59 min, {topic}-1 is left out" in each for each in query["remarks"])
        holders = [change["after"] for change in found["changes"] if change["kind"] == "holder"]
        assert holders
        assert all(a != b for a, b in pairwise(holders))
        assert query["held_since"]
        with urlopen(page.url) as answer:
            shown = answer.read().decode().replace("\u00a0", " ")
        assert f"{topic}-1 has held the watermark back since " in shown
        text = re.sub("<[^>]*>", "", shown)
        assert f"Without {topic}-1 the watermark would be 20 s later, at 2023-11-14 22:14:19" in text
        assert f"<td>{source['splits'][topic]['1']['why']}</td>" in shown
        assert '<b>windows</b> <span class="word">1 min</span>' in shown
        assert shown.count("<polyline") == 2
        running.query.stop()
        wait_until(lambda: not json_of(page.url)["queries"], 60, "the query to leave the page")
        assert json_of(page.url)["changes"]
    page.stop()
    with pytest.raises(URLError):
        json_of(page.url)


def once_shown(url: str, holder: str, running: Running) -> dict[str, Any]:
    """Return the page's JSON once a partition holds the watermark there, and since when is known."""

    def is_shown() -> bool:
        queries = json_of(url)["queries"]
        return bool(
            queries and queries[0]["held_since"] and f"{holder} is 20 s behind, with nothing" in queries[0]["open"]
        )

    wait_for(is_shown, running.query)
    return json_of(url)


def json_of(url: str) -> dict[str, Any]:
    with urlopen(f"{url}status.json") as answer:
        found: dict[str, Any] = json.load(answer)
    return found
