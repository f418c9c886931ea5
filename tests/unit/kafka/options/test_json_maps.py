"""Spark's JSON of partitions, read strictly; the shapes that are refused are in test_kafka_options.py."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_aligned_kafka.options.positions import (
    ShapeError,
    integers_of,
    parse_integers,
    parse_integers_and_words,
    parse_partitions,
)
from watermark_source.planning.split import Split

splits = st.builds(Split, st.text(min_size=1, max_size=5), st.integers(0, 1000))


@given(st.dictionaries(splits, st.integers(-2, 2**63 - 1), min_size=1))
def test_what_spark_writes_is_read_back(positions: dict[Split, int]) -> None:
    nested: dict[str, dict[str, int]] = {}
    for split, number in positions.items():
        nested.setdefault(split.log, {})[str(split.number)] = number
    assert parse_integers(json.dumps(nested)) == positions


@pytest.mark.parametrize("parse", [parse_integers, parse_integers_and_words, parse_partitions])
@given(text=st.text())
def test_any_other_text_is_a_shape_error(parse: Callable[[str], object], text: str) -> None:
    with contextlib.suppress(ShapeError):
        parse(text)


@pytest.mark.parametrize(
    "text",
    ['{"t":{"0":9223372036854775808}}', '{"t":{"0":-9223372036854775808}}', '{"t":{"2147483648":1}}', '{"t":{"00":1}}'],
)
def test_numbers_that_fit_into_no_offset_are_a_shape_error(text: str) -> None:
    with pytest.raises(ShapeError):
        parse_integers(text)


@pytest.mark.parametrize("parse", [parse_integers, parse_partitions])
def test_a_nest_too_deep_is_a_shape_error(parse: Callable[[str], object]) -> None:
    with pytest.raises(ShapeError, match="nested too deeply"):
        parse('{"t":' * 100_000)


def test_a_nest_too_deep_to_be_shown_is_a_shape_error() -> None:
    nest: object = 1
    for _ in range(100_000):
        nest = [nest]
    with pytest.raises(ShapeError, match="t-0 has a deep nest"):
        integers_of({"t": {"0": nest}})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@given(json_values)
def test_any_other_value_is_a_shape_error(value: object) -> None:
    try:
        found = integers_of(value)
    except ShapeError:
        return
    assert all(type(number) is int for number in found.values())


def test_a_repeated_topic_is_refused() -> None:
    with pytest.raises(ShapeError, match='"t" is there twice'):
        parse_partitions('{"t":[0],"t":[1]}')


@pytest.mark.parametrize(
    ("text", "numbers", "words"),
    [
        ('{"t":{"0":1}}', {Split("t", 0): 1}, {}),
        ('{"t":"earliest"}', {}, {"t": "earliest"}),
        ('{"t":"any word","u":{"3":-2}}', {Split("u", 3): -2}, {"t": "any word"}),
    ],
)
def test_a_topic_may_have_a_word_in_the_place_of_its_partitions(
    text: str, numbers: dict[Split, int], words: dict[str, str]
) -> None:
    assert parse_integers_and_words(text) == (numbers, words)
