"""What a subscription matches."""

from __future__ import annotations

import pytest

from pyspark_aligned_kafka.options.subscription import (
    is_topic_name,
    parse_assign,
    parse_subscribe,
    parse_subscribe_pattern,
)


@pytest.mark.parametrize(("pattern", "topic", "found"), [
    ("orders", "all-orders-eu", True),
    ("^orders$", "all-orders-eu", False),
    ("orders-\\d", "orders-7", True),
    ("orders-\\d", "orders-\u0667", False),
])  # fmt: skip
def test_a_pattern_is_found_anywhere_and_its_classes_are_ascii(pattern: str, topic: str, found: bool) -> None:
    assert bool(parse_subscribe_pattern(pattern).pattern.search(topic)) is found


@pytest.mark.parametrize("name", [".", "..", "", "a/b", "a b", "ä", "x" * 250])
def test_what_kafka_takes_for_no_topic_name_is_refused(name: str) -> None:
    assert not is_topic_name(name)
    with pytest.raises(ValueError):
        parse_subscribe(name)


def test_a_topic_named_twice_is_one_topic() -> None:
    assert parse_subscribe("a,a").topics == {"a"}


@pytest.mark.parametrize("pattern", ["[[:alpha:]]+", "[a-z&&b]", "a[[b]c]"])
def test_sets_that_java_reads_otherwise_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"are Java's; for a bracket within a set write \\\["):
        parse_subscribe_pattern(pattern)


@pytest.mark.parametrize("text", ['{"a b":[0]}', '{"":[1]}', '{"ok":[0],"ä":[1]}'])
def test_assign_refuses_names_that_no_topic_has(text: str) -> None:
    with pytest.raises(ValueError, match="cannot be the name of a topic"):
        parse_assign(text)
