"""Strategies as objects: a new one is a class and an option row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import ClassVar

import pytest

from tests.simulation.driver import START, Driver
from tests.unit.planning.example_states import log_of
from watermark_source.errors import OptionError
from watermark_source.option_table import OptionTable, at_least_one
from watermark_source.planning.disorder import RangeSummary
from watermark_source.planning.policy import PlanPolicy
from watermark_source.planning.strategy import (
    Abilities,
    Bounded,
    Ingestion,
    LookAhead,
    ProcessingTime,
    Punctuated,
    WatermarkStrategy,
)
from watermark_source.planning.watermark import MIN, Millis
from watermark_source.spark import strategy_rows
from watermark_source.spark.option_rows import ENGINE_OPTIONS, strategy_option
from watermark_source.spark.options import EngineOptions
from watermark_source.spark.strategy_rows import STRATEGIES, StrategyRow

ROWS = at_least_one(name="stepMillis", default=1_000, example="1000", doc="How long a step is.")


@dataclass(frozen=True, slots=True)
class Stepwise(Bounded):
    """Advances by whole steps only."""

    needs: ClassVar[Mapping[str, str]] = {"marks": "needs records that carry steps"}
    step: int = 1

    def on_range(self, seen: RangeSummary) -> Millis | None:
        return None if seen.highest is None else Millis(seen.highest // self.step * self.step)


ROW = StrategyRow(
    name="stepwise",
    kind=Stepwise,
    doc="whole steps.",
    make=lambda values, _: Stepwise(step=values["stepMillis"]),
    options=("stepMillis",),
)


def parsed(abilities: Abilities, **given: str) -> EngineOptions:
    others = (option for option in ENGINE_OPTIONS if option.name != "watermarkStrategy")
    table = OptionTable((strategy_option(strategy_rows.STRATEGIES), ROWS, *others))
    return EngineOptions.of(table.parse(given), format_name="f", given=given, abilities=abilities)


def test_a_new_strategy_is_a_class_and_an_option_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strategy_rows, "STRATEGIES", (*STRATEGIES, ROW))
    options = parsed(Abilities(marks=True), watermarkStrategy="stepwise", stepMillis="500")
    log = log_of([START + 1_234, START + 700], [START + 900])
    driver = Driver(log, PlanPolicy(strategy=options.policy.strategy))
    driver.run()
    assert driver.state().watermark == START + 500
    with pytest.raises(OptionError, match="needs records that carry steps"):
        parsed(Abilities(), watermarkStrategy="stepwise")
    with pytest.raises(OptionError, match="belongs to watermarkStrategy stepwise, and the strategy"):
        parsed(Abilities(), stepMillis="7")


@pytest.mark.parametrize("row", STRATEGIES, ids=lambda row: row.name)
def test_what_a_strategy_needs_is_something_that_a_connector_can_declare(row: StrategyRow) -> None:
    assert row.kind.needs.keys() <= {field.name for field in fields(Abilities)}


def test_no_event_time_advances_a_split_whose_records_carry_its_watermark_nor_one_on_the_clock() -> None:
    at = Millis(100)
    for strategy in (Punctuated(), ProcessingTime()):
        found = [
            strategy.on_range(RangeSummary(at)),
            strategy.with_batch(at),
            strategy.at_end(at),
            strategy.at_rest(at),
        ]
        assert found == [None] * 4


@pytest.mark.parametrize(
    ("strategy", "with_batch", "at_end", "at_rest", "beside_rows"),
    [
        (Bounded(10), 89, 89, 89, None),
        # The driver's clock does not date rows: it advances splits at rest alone, by its own distance.
        (Ingestion(30, 10), 89, None, 69, 69),
        # What is read ahead shows the rows of the batch.
        (LookAhead(rows=5, out_of_orderness=10), None, 89, 89, None),
    ],
)
def test_which_times_advance_a_split_before_its_rows_are_read(
    strategy: WatermarkStrategy,
    with_batch: int | None,
    at_end: int | None,
    at_rest: int | None,
    beside_rows: int | None,
) -> None:
    at = Millis(100)
    assert (strategy.with_batch(at), strategy.at_end(at)) == (with_batch, at_end)
    assert (strategy.at_rest(at), strategy.at_rest_beside_rows(at)) == (at_rest, beside_rows)


def test_the_clock_of_a_split_at_rest_is_the_inverse_of_its_watermark() -> None:
    assert Ingestion(30).clock_at(Millis(69)) == 100
    assert Bounded(30).clock_at(Millis(69)) is None


def test_event_times_saturate_at_the_ends_of_time() -> None:
    assert replace(Bounded(), out_of_orderness=5).watermark_of(MIN) == MIN
