"""Which topics and partitions a query reads: a list of topics, a pattern, or partitions by number."""

from __future__ import annotations

import re
import warnings
from collections.abc import Set
from dataclasses import dataclass

from pyspark_aligned_kafka.options.positions import parse_partitions
from watermark_source.errors import listed, shortened
from watermark_source.planning.split import Split

MOST_TOPIC_NAME = 249
"""Characters of a topic's name."""
ANNOUNCED_IN = ".watermarks"
"""End of the name of a topic of announcements."""
_TOPIC = re.compile(rf"[A-Za-z0-9._-]{{1,{MOST_TOPIC_NAME}}}")


@dataclass(frozen=True, slots=True)
class Subscribe:
    """All partitions of the topics named."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """All partitions of the topics in whose name the pattern is *found*, as Spark does; internal topics excluded."""

    pattern: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Assign:
    """Exactly these partitions, as far as they exist."""

    splits: frozenset[Split]


Subscription = Subscribe | SubscribePattern | Assign


def selects_topic(subscription: Subscription, topic: str) -> bool:
    """Return whether a subscription reads partitions of a topic, whether it exists or not."""
    if isinstance(subscription, SubscribePattern):
        return subscription.pattern.search(topic) is not None
    return topic in topics_of(subscription)


def selects(subscription: Subscription, split: Split) -> bool:
    """Return whether a subscription reads a partition, whether it exists or not."""
    return split in subscription.splits if isinstance(subscription, Assign) else selects_topic(subscription, split.log)


def topics_of(subscription: Subscribe | Assign) -> frozenset[str]:
    """Return the topics that a subscription names."""
    return subscription.topics if isinstance(subscription, Subscribe) else frozenset(s.log for s in subscription.splits)


def selection_text(subscription: Subscription) -> str:
    """Return the option and its value, as one sentence."""
    if isinstance(subscription, SubscribePattern):
        return f"subscribePattern is {shortened(subscription.pattern.pattern)}"
    option = "subscribe" if isinstance(subscription, Subscribe) else "assign"
    return f"{option} is {listed(topics_of(subscription))}"


def parse_subscribe(text: str) -> Subscribe:
    """Parse a comma list of topics; blanks around names and empty entries are dropped, as Spark does."""
    topics = frozenset(name for part in text.split(",") if (name := part.strip()))
    if not topics:
        raise ValueError("names no topic")
    _check_names(topics)
    return Subscribe(topics)


def parse_subscribe_pattern(text: str) -> SubscribePattern:
    """Parse a regular expression; classes such as ``\\d`` are ASCII as in Java."""
    if not text.strip():
        raise ValueError("is empty")
    try:
        with warnings.catch_warnings():
            # Python warns of sets that Java reads in another way.
            warnings.simplefilter("error", FutureWarning)
            return SubscribePattern(re.compile(text, re.ASCII))
    except FutureWarning as warning:
        raise ValueError(
            f"{warning}: sets within sets, [:alpha:] and && are Java's; for a bracket within a set write \\["
        ) from None
    except (re.error, OverflowError) as error:
        raise ValueError(f"not a regular expression: {error}") from None
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def parse_assign(text: str) -> Assign:
    """Parse Spark's ``{"topic":[0,1]}``."""
    splits = parse_partitions(text)
    if not splits:
        raise ValueError("names no partition")
    _check_names({split.log for split in splits})
    return Assign(splits)


def is_topic_name(name: str) -> bool:
    """Return whether Kafka accepts the name."""
    return _TOPIC.fullmatch(name) is not None and name not in (".", "..")


def announcements_of(topic: str) -> str:
    """Return the name of the topic with the announcements of a topic's writers."""
    return topic + ANNOUNCED_IN


def _check_names(topics: Set[str]) -> None:
    for topic in sorted(topics):
        if not is_topic_name(topic):
            raise ValueError(f'"{topic}" cannot be the name of a topic')
