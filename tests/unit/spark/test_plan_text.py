"""Analysed plans as Spark Connect's server prints them: what a query follows, without a server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from watermark_source.errors import UsageError
from watermark_source.operators.changes import row_paths
from watermark_source.planning.watermark import WatermarkCharacteristic
from watermark_source.spark.accepted_operators import need_kept_markers
from watermark_source.spark.connect_plan import steps_of_connect
from watermark_source.spark.plan_text import PlanText
from watermark_source.spark.source_time import SourceTime
from watermark_source.spark.started_queries import examine_plan

READ = (
    "~StreamingRelationV2 file-log, org.apache.spark.sql.execution.datasources.v2.python.PythonTable@481e7616, [], "
    "[split#134L, value#135L, event_time#136, marker#137], V2SessionCatalog(spark_catalog), default.t"
)
WATERMARK = "~EventTimeWatermark 11648eaa-443b-4b2d-8d06-4344d4ca4569, event_time#136: timestamp, 5 seconds"
OF_WINDOWS = (
    "~Aggregate [window#140-T0ms], [count(1) AS count#139L]",
    "~Project [event_time#136-T0ms AS window#140-T0ms]",
)
NOT_NULL = "~Filter isnotnull(event_time#136-T0ms)"
PLANS: dict[str, tuple[tuple[str, ...], str | None]] = {
    "rows with markers": ((READ,), "marker rows"),
    "windows by WATERMARK": ((*OF_WINDOWS, NOT_NULL, WATERMARK, "~SubqueryAlias t", READ), "highest event time"),
    "markers left out above WATERMARK": (("~Filter isnull(marker#137)", WATERMARK, READ), "highest event time"),
    "rows without a time left out": ((NOT_NULL, READ), None),
    "nulls that a computation drops": (("~Filter ((pmod(value#135L, 4) + 1) > 3)", READ), None),
    "nulls that a function drops": (("~Filter Contains(cast(value#135L as string), 7)", READ), None),
    "nulls that a function may keep": (("~Filter (coalesce(value#135L, 4) > 3)", READ), "marker rows"),
    "nulls whose size is -1": (("~Filter (size(split(cast(value#135L as string), x, -1), true) < 3)", READ), "marker"),
    "data rows": (("~Project [value#135L]", "~Filter isnull(marker#137)", READ), None),
    "WATERMARK of data rows": ((*OF_WINDOWS, NOT_NULL, WATERMARK, "~Filter isnull(marker#137)", READ), None),
}


def tree_of(*nodes: str) -> str:
    return "\n".join(f"{'   ' * (depth - 1)}+- {node}" if depth else node for depth, node in enumerate(nodes))


def forked(inputs: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield the lines of several inputs below one operator."""
    for number, nodes in enumerate(inputs, 1):
        first, *others = tree_of(*nodes).splitlines()
        is_last = number == len(inputs)
        yield ("+- " if is_last else ":- ") + first
        yield from (("   " if is_last else ":  ") + line for line in others)


@pytest.mark.parametrize("plan", PLANS)
def test_a_watermark_of_sparks_own_is_seen_below_what_leaves_out_rows(plan: str) -> None:
    nodes, text = PLANS[plan]
    found = [str(each) for each in examine_plan(PlanText.of(tree_of(*nodes)).steps()).warnings]
    assert len(found) == (text is not None)
    assert text is None or text in found[0]


def test_a_watermark_above_a_common_table_expression_is_seen_with_what_the_expression_leaves_out() -> None:
    tree = f"""~WithCTE
:- ~CTERelationDef 0, false
:  +- ~SubqueryAlias a
:     +- ~Filter (value#135L > cast(1 as bigint))
:        +- {READ}
+- ~Aggregate [count(1) AS count#139L]
   +- {WATERMARK}
      +- ~SubqueryAlias a
         +- ~CTERelationRef 0, true, [split#134L, value#135L, event_time#136, marker#137], true"""
    found = [str(each) for each in examine_plan(PlanText.of(tree).steps()).warnings]
    assert len(found) == 1
    assert "highest event time" in found[0]


def test_a_plan_in_a_condition_is_no_input_of_its_operator() -> None:
    """Its columns would be those of the filter, and what the stream is made of would not be seen."""
    tree = f"""~Filter value#135L IN (list#28 [])
:  +- Project [id#29L]
:     +- Range (0, 9, step=1)
+- {READ}"""
    plan = PlanText.of(tree).steps()
    assert [child.kind for child in plan.children] == ["StreamingRelationV2"]
    assert [column.name for column in plan.output] == ["split", "value", "event_time", "marker"]


@pytest.mark.parametrize(
    ("join", "keeps"),
    [
        ("LeftOuter, (value#135L = k#200L)", True),
        ("LeftOuter, ((value#135L = k#200L) AND isnotnull(name#201))", True),
        ("LeftOuter", False),
        ("LeftOuter, (coalesce(value#135L, cast(1 as bigint)) = k#200L)", False),
        ("LeftOuter, (value#135L <=> k#200L)", False),
    ],
)
def test_columns_of_a_table_are_null_for_a_marker_only_where_the_join_finds_no_row_for_it(
    join: str, keeps: bool
) -> None:
    """A filter that keeps rows without a match would remove the markers that have one: no window would ever close."""
    inputs = forked(((READ,), ("Project [k#200L, name#201]", "LocalRelation [k#200L, name#201]")))
    tree = "\n".join(("~Filter isnull(name#201)", f"+- ~Join {join}", *(f"   {line}" for line in inputs)))
    if keeps:
        need_kept_markers(PlanText.of(tree).steps())
    else:
        with pytest.raises(UsageError, match=r"the filter isnull.* may remove the marker rows"):
            need_kept_markers(PlanText.of(tree).steps())


def test_a_table_that_is_joined_twice_may_have_a_row_for_a_marker_in_one_of_the_joins() -> None:
    """Its columns have the same numbers in both joins, of which a projection is between."""
    tree = f"""~Filter isnull(first#202)
+- ~Join LeftOuter, (value#135L = k#200L)
   :- ~Project [event_time#136, marker#137, value#135L, name#201 AS first#202]
   :  +- ~Join LeftOuter
   :     :- {READ}
   :     +- LocalRelation [k#200L, name#201]
   +- LocalRelation [k#200L, name#201]"""
    with pytest.raises(UsageError, match=r"the filter isnull.* may remove the marker rows"):
        need_kept_markers(PlanText.of(tree).steps())


class Explained(dict[str, str]):
    """A DataFrame of Spark Connect, and the settings of its session: its server cuts long texts, as Spark does."""

    def __init__(self, text: str) -> None:
        super().__init__({"spark.sql.maxPlanStringLength": "200"})
        self._text = text
        self.sparkSession = SimpleNamespace(conf=self, session_id="of a test")

    def _explain_string(self, *, extended: bool) -> str:
        limit = int(self["spark.sql.maxPlanStringLength"]) - 30
        left = len(self._text) - limit
        return self._text if left <= 0 or not extended else f"{self._text[:limit]}... {left} more characters"

    def set(self, name: str, value: str) -> None:
        self[name] = value

    def unset(self, name: str) -> None:
        del self[name]


def test_what_a_server_cuts_off_a_long_plan_is_asked_for() -> None:
    """A filter below a long projection removes the marker rows all the same."""
    columns = ", ".join(f"{number} AS column_{number}#{300 + number}" for number in range(20))
    tree = tree_of(f"~Project [event_time#136, marker#137, {columns}]", "~Filter (value#135L > 3)", READ)
    explained = Explained(f"== Analyzed Logical Plan ==\nevent_time: timestamp\n{tree}\n== Optimized Logical Plan ==\n")
    with pytest.raises(UsageError, match="the filter"):
        need_kept_markers(steps_of_connect(cast(Any, explained)))
    assert explained == {"spark.sql.maxPlanStringLength": "200"}


@pytest.mark.parametrize("name", ["a)", "(b", "c, d", "e#5", "f\ng"])
def test_columns_of_a_source_may_have_any_names(name: str) -> None:
    """What is read of it would be reported as examined by nothing, and what it declares as damaged JSON."""
    nodes = [node.replace("split#134L", f"{name}#133, split#134L") for node in FOLLOWED]
    assert examine_plan(PlanText.of(tree_of(*nodes)).steps()) == ((), True)
    ((source, lost),) = row_paths(PlanText.of(tree_of(*nodes)).steps(), ["value"])
    assert (source, lost) == (DECLARATION, None)
    (warning,) = examine_plan(PlanText.of(nodes[-1]).steps()).warnings
    assert "marker rows of file-log" in str(warning)


DATA_ROWS = ("~Project [value#135L]", "~Filter isnull(marker#137)", READ)
WITH_WATERMARK = (WATERMARK, "~Filter isnull(marker#137)", READ)


@pytest.mark.parametrize(
    ("above", "inputs", "warned"),
    [
        ("~Aggregate [count(1) AS count#139L]", (WITH_WATERMARK, DATA_ROWS), True),
        ("~Deduplicate [value#135L]", (WITH_WATERMARK, WITH_WATERMARK, DATA_ROWS), True),
        ("~Aggregate [count(1) AS count#139L]", (WITH_WATERMARK, WITH_WATERMARK), False),
        # The union has the event time of its first input, here none, and Spark refuses to close windows.
        ("~Aggregate [count(1) AS count#139L]", (DATA_ROWS, WITH_WATERMARK), False),
        ("~Project [value#135L]", (WITH_WATERMARK, DATA_ROWS), False),
    ],
)
def test_rows_without_a_watermark_that_are_united_with_others_are_seen(
    above: str, inputs: tuple[tuple[str, ...], ...], warned: bool
) -> None:
    tree = "\n".join((above, "+- ~Union false, false", *(f"   {line}" for line in forked(inputs))))
    found = [str(each) for each in examine_plan(PlanText.of(tree).steps()).warnings]
    assert [text for text in found if "no watermark where they are united" in text] == found
    assert bool(found) is warned


# The build side of a temporal join: what loses changes of a key is seen in the text alone.

DECLARATION = SourceTime("users of a shop, [eu]", WatermarkCharacteristic.ANY_WATERMARK, processing_time=False)
CLOCK = "CASE WHEN (marker#137.type = watermark) THEN marker#137.watermark END AS __watermark_source_clock#138"
COLUMNS = "split#134L, value#135L, event_time#136, marker#137"
FOLLOWED = (
    "~Filter (isnull(marker#137) OR (SPARK_PARTITION_ID() < 0))",
    "~EventTimeWatermark 11648eaa-443b-4b2d-8d06-4344d4ca4569, __watermark_source_clock#138: timestamp, 0 seconds",
    f"~Project [{CLOCK}, {DECLARATION.in_plan()} AS __watermark_source_declared#139, {COLUMNS}]",
    READ,
)
KEYED = "~Project [cast(cast(value#135L as string) as bigint) AS user#150L, split#134L AS name#151L, it's d AS op#152]"
BUILDS: dict[str, tuple[tuple[str, ...], str | None]] = {
    "all rows": ((), None),
    "keys": (("~Filter (user#150L > cast(1 as bigint))",), None),
    "kinds": (("~Filter NOT (op#152 = x, #151 y)",), "the filter NOT (op = x,  y)"),
    "a kind of change": (("~Filter (op#152 = u)",), None),
    "another column": (("~Filter ((user#150L > cast(1 as bigint)) AND (name#151L = 3))",), "the filter ((user > "),
    "chance": (("~Filter ((user#150L > cast(1 as bigint)) OR (rand(7) < cast(0.5 as double)))",), "the filter ((user"),
    "a clock": (("~Filter (user#150L > unix_timestamp(current_timestamp(), yyyy, Some(UTC), false))",), "the filter"),
    "a function of a user": (("~Filter is_ours(user#150L)#153",), "the filter is_ours(user)"),
    "a plan in it": (("~Filter user#150L IN (list#28 [])",), "the filter user IN (list [])"),
    "duplicates": (("~Deduplicate [user#150L]",), "dropDuplicates"),
    "what is not known": (("~Pivoted [user#150L]",), "the operator Pivoted"),
}


@pytest.mark.parametrize("build", BUILDS)
def test_what_leaves_out_changes_of_a_key_is_seen_in_the_text_alone(build: str) -> None:
    """A change that is left out ends no version: rows that were deleted would count on, without an error."""
    nodes, seen = BUILDS[build]
    plan = PlanText.of(tree_of(*nodes, KEYED, *FOLLOWED)).steps()
    ((source, lost),) = row_paths(plan, ["user", "op"])
    assert source == DECLARATION
    assert (lost is None) is (seen is None)
    assert lost is None or seen is None or lost.operator.startswith(seen), lost


@pytest.mark.parametrize("nodes", [(READ,), ("~StreamingRelation rate, [timestamp#1, value#2L]",), ("~Later [a#1]",)])
def test_a_build_side_whose_source_the_text_does_not_show_is_refused(nodes: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="follow_watermark"):
        row_paths(PlanText.of(tree_of(*nodes)).steps(), ["value"])
