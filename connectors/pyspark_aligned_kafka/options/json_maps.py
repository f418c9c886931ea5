"""Spark's JSON of partitions, ``{"topic":[0,1]}``, ``{"topic":{"0":23}}`` and ``{"topic":"latest"}``, read strictly."""

from __future__ import annotations

import json
from typing import Any

from watermark_source.planning.split import Split

_MOST_PARTITION, _MOST = 2**31 - 1, 2**63 - 1


class ShapeError(ValueError):
    """The text is not JSON or not of the expected shape; the message says where."""


def parse_partitions(text: str) -> frozenset[Split]:
    """Read ``{"topic":[0,1]}``.

    Raises:
        ShapeError: the text is not of that shape.
    """
    splits: set[Split] = set()
    for topic, numbers in _object(_load(text)).items():
        if not isinstance(numbers, list):
            raise ShapeError(f'"{topic}" must hold a list of partition numbers')
        for number in numbers:
            if not _is_integer(number) or not 0 <= number <= _MOST_PARTITION:
                raise ShapeError(f'"{topic}" holds {_shown(number)}, which is not a partition number')
            splits.add(Split(topic, number))
    return frozenset(splits)


def parse_integers(text: str) -> dict[Split, int]:
    """Read ``{"topic":{"0":23,"1":-2}}``.

    Raises:
        ShapeError: the text is not of that shape.
    """
    return integers_of(_load(text))


def parse_integers_and_words(text: str) -> tuple[dict[Split, int], dict[str, str]]:
    """Read ``{"topic":{"0":23},"other":"latest"}``: integers by partition, and words by topic.

    Raises:
        ShapeError: the text is not of that shape.
    """
    topics = _object(_load(text))
    words = {topic: word for topic, word in topics.items() if isinstance(word, str)}
    numbered = {topic: partitions for topic, partitions in topics.items() if topic not in words}
    return integers_of(numbered) if numbered else {}, words


def integers_of(value: Any) -> dict[Split, int]:
    """Read the already decoded form of ``parse_integers``; the same ``ShapeError``."""
    found: dict[Split, int] = {}
    for topic, partitions in _object(value).items():
        if not isinstance(partitions, dict):
            raise ShapeError(f'"{topic}" must hold an object of partition numbers')
        for key, number in partitions.items():
            if not _is_partition(key):
                raise ShapeError(f'"{topic}" has the key "{key}", which is not a partition number')
            if not _is_integer(number):
                raise ShapeError(f"{topic}-{key} has {_shown(number)}, which is not a whole number")
            if not -_MOST <= number <= _MOST:
                raise ShapeError(f"{topic}-{key} has {number}, which does not fit into 64 bits")
            found[Split(topic, int(key))] = number
    return found


def _load(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_without_duplicates)
    except json.JSONDecodeError as error:
        raise ShapeError(f"not JSON: {error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise ShapeError("is nested too deeply") from None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise ShapeError(f'"{repeated}" is there twice')
    return result


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ShapeError("must be a JSON object of topics")
    if not value:
        raise ShapeError("names no topic")
    return value


def _shown(value: Any) -> str:
    try:
        return json.dumps(value)
    except RecursionError:
        return "a deep nest"


def _is_partition(key: str) -> bool:
    digits = key.isascii() and key.isdigit() and len(key) <= len(str(_MOST_PARTITION))
    return digits and str(int(key)) == key and int(key) <= _MOST_PARTITION


def _is_integer(value: Any) -> bool:
    # JSON's true and false are instances of int in Python.
    return isinstance(value, int) and not isinstance(value, bool)
