"""Strategies as objects: a new one is a class and an option row, also one that remembers earlier ranges."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import ClassVar

import pytest

from tests.simulation.driver import START, Driver
from tests.unit.planning.example_states import A, log_of
from tests.unit.planning.generators import HERE
from tests.unit.planning.median_of_ranges import MedianOfRanges
from watermark_source.errors import OptionError
from watermark_source.option_table import OptionTable, at_least_one
from watermark_source.planning import strategy as strategies
from watermark_source.planning.announced import AnnouncedBy
from watermark_source.planning.disorder import RangeSummary
from watermark_source.planning.generator import Own, OwnWithMarks
from watermark_source.planning.policy import PlanPolicy
from watermark_source.planning.split import Split
from watermark_source.planning.strategy import (
    Abilities,
    Advance,
    Announced,
    Bounded,
    Ingestion,
    LookAhead,
    Monotonous,
    Percentile,
    ProcessingTime,
    Punctuated,
    WatermarkStrategy,
)
from watermark_source.planning.watermark import MIN, Millis
from watermark_source.spark import strategy_rows
from watermark_source.spark.driver.offsets import check_kept
from watermark_source.spark.option_rows import ENGINE_OPTIONS, strategy_option
from watermark_source.spark.options import EngineOptions
from watermark_source.spark.strategy_rows import STRATEGIES, StrategyRow

ROWS = at_least_one(name="stepMillis", default=1_000, example="1000", doc="How long a step is.")


@dataclass(frozen=True, slots=True)
class Stepwise(Bounded):
    """Advances by whole steps only."""

    needs: ClassVar[Mapping[str, str]] = {"marks": "needs records that carry steps"}
    step: int = 1

    def on_range(self, split: Split, kept: str | None, seen: RangeSummary, cap: Millis | None) -> Advance:
        return Advance(None if seen.highest is None else Millis(seen.highest // self.step * self.step))


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


def test_a_new_strategy_that_remembers_ranges_has_them_again_in_another_process() -> None:
    log = log_of([START + 1_000, START + 900, START + 5_000, START + 2_000], [START + 9_000])
    driver = Driver(log, PlanPolicy(strategy=MedianOfRanges()), max_rows=1)
    for _ in range(8):
        driver.step()
        driver.restart()
    assert driver.state().splits[A].watermark == START + 2_000
    assert json.loads(driver.text)["own"] == {
        "class": "median-of-ranges",
        "states": {"log": {"0": [START + 900, START + 5_000, START + 2_000], "1": [START + 9_000]}},
    }


@pytest.mark.parametrize("after", [Bounded(), Own(f"{HERE}:ByParity")], ids=["ours", "users"])
def test_what_one_of_our_strategies_remembers_is_dropped_under_another(
    after: WatermarkStrategy, caplog: pytest.LogCaptureFixture
) -> None:
    driver = Driver(log_of([START], [START]), PlanPolicy(strategy=MedianOfRanges()))
    driver.run()
    state = driver.state()
    assert (state.kept_by, {t.kept for t in state.splits.values()}) == ("median-of-ranges", {f"[{START}]"})
    check_kept(state, after)
    assert "state of median-of-ranges, and watermarkStrategy is another: that state is dropped" in caplog.text
    driver.policy = PlanPolicy(strategy=after)
    driver.log.splits[A].append([START + 60_000])
    driver.run()
    assert driver.state().kept_by == after.keeps_as
    assert "[" not in (driver.state().splits[A].kept or "")


def test_the_table_of_strategies_states_what_each_answers() -> None:
    table = [line.split() for line in (inspect.getdoc(strategies) or "").splitlines() if line.startswith("    ")]
    names, rows = table[0][1:], {name: answers for name, *answers in table[1:]}
    made = [
        Bounded(7), Monotonous(), Percentile.of(900_000, 7), Ingestion(9, 7), LookAhead(5, 7), Punctuated(), Own("m:C"),
        OwnWithMarks("m:C"), Announced(AnnouncedBy()), ProcessingTime(),
    ]  # fmt: skip
    assert {type(each).__name__ for each in made} == rows.keys()
    assert {row.kind for row in STRATEGIES} <= {type(each) for each in made}
    texts = {True: "yes", False: "no", None: "None"}
    for each in made:
        answers = {name: getattr(each, name) for name in names}
        assert answers["behind_highest"] in (None, each.bound)
        shown = [
            answers["tasks_observe"].name,
            "None" if answers["behind_highest"] is None else "bound",
            *(texts[answers[name]] for name in names[2:]),
        ]
        assert shown == rows[type(each).__name__], each


@pytest.mark.parametrize("row", STRATEGIES, ids=lambda row: row.name)
def test_what_a_strategy_needs_is_something_that_a_connector_can_declare(row: StrategyRow) -> None:
    assert row.kind.needs.keys() <= {field.name for field in fields(Abilities)}


def test_no_event_time_advances_a_split_whose_records_carry_its_watermark_nor_one_on_the_clock() -> None:
    at = Millis(100)
    for strategy in (Punctuated(), ProcessingTime()):
        found = [
            strategy.on_range(A, None, RangeSummary(at), None).watermark,
            strategy.with_batch(at),
            strategy.at_end(at),
            strategy.at_rest(A, None, at),
        ]
        assert found == [None] * 4


@pytest.mark.parametrize(
    ("strategy", "with_batch", "at_end", "at_rest", "beside_rows"),
    [
        (Bounded(10), 89, 89, 89, None),
        # The driver's clock does not date rows: it advances splits at rest alone, by its own distance.
        (Ingestion(30, 10), 89, None, 69, 69),
        # What is read ahead shows the rows of the batch.
        (LookAhead(rows_ahead=5, bound=10), None, 89, 89, None),
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
    assert (strategy.at_rest(A, None, at), strategy.at_rest_beside_rows(A, None, at)) == (at_rest, beside_rows)


def test_the_clock_of_a_split_at_rest_is_the_inverse_of_its_watermark() -> None:
    assert Ingestion(30).clock_due(Millis(69), Millis(500), 9) == 100
    assert Bounded(30).clock_due(Millis(69), Millis(500), 9) is None


def test_event_times_saturate_at_the_ends_of_time() -> None:
    assert replace(Bounded(), bound=5).watermark_of(MIN) == MIN
