"""The watermarks that Spark's stateful operators state for a batch, and what follows from them for a query's output.

Each stateful operator of a batch has the watermark at or before which it dropped rows as late, the one by which it
emitted and removed state, and states by ``produceOutputWatermark`` which event times its own later rows can have. Spark
does the same within a query, between two stateful operators (SPARK-40925); here the last of them answers for the sink.

Only for Spark Classic: Spark Connect shows its clients no plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

from watermark_source.errors import UsageError
from watermark_source.planning.offset import own_offset
from watermark_source.planning.watermark import LAST, MAX, Millis
from watermark_source.spark.plan_steps import KEEP_STATE
from watermark_source.spark.query_windows import Windows, windows_in
from watermark_source.supported_spark import scala_items

if TYPE_CHECKING:
    # What draws a page from a checkpoint needs no Spark.
    from pyspark.sql.streaming import StreamingQuery

_END = 2**62 // 1_000
"""Half of Spark's range of times, in milliseconds: a watermark beyond it is the end of time (``finalWatermark``)."""
_FUNCTIONS = "TransformWithState"
"""Operators whose rows a user's function makes: Spark's statement does not bind it."""
_CHECKED_FUNCTIONS = "UpdateEventTimeColumnExec"
"""Above such an operator if the user named its event-time column: Spark then fails a query that breaks the promise."""
_OWN_PACKS = ({"bucket", "is_probe", "rows"}, {"__bucket", "task", "number", "rows"})
"""Columns that enter ``temporal_join`` and ``order_by_event_time``, which emit rows once the watermark passes them."""


class Why(Enum):
    """Why a query has no output watermark."""

    NO_BATCH = "no batch has been executed yet"
    NO_WATERMARK = "no watermark yet"
    PLANNING = "Spark plans or executes the next batch at this moment"
    COMPLETE_MODE = "the output mode is complete: each batch writes every row again, with its old event time"
    NO_PROMISE = "an operator states nothing about the event times of its later rows"
    FOREIGN_SOURCE = "a source without a watermark of its own feeds rows that no stateful operator has filtered"


@dataclass(frozen=True, slots=True)
class NoWatermark:
    """A query has no output watermark."""

    why: Why
    where: str | None = None
    """The operator or the source."""

    def __str__(self) -> str:
        return self.why.value if self.where is None else f"{self.why.value}: {self.where}"


OutputWatermark: TypeAlias = Millis | NoWatermark
"""No row that the query writes later has an event time at or before it; ``MAX``: it writes no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorWatermark:
    """What one stateful operator states about a batch. Milliseconds; ``None``: no watermark yet."""

    name: str
    """Spark's name of it, such as ``StateStoreSave``."""
    operator: int | None
    """Its number within the query, by which progress events and the checkpoint name it; ``None`` if it has none."""
    late: Millis | None
    """Rows with event times at or before it were dropped as late: the watermark of the batch before."""
    eviction: Millis | None
    """The watermark by which it emitted rows and removed state."""
    output_before: Millis | None
    """Event times of all rows of this batch and of later ones are after it."""
    output: Millis | None
    """Event times of all rows of later batches are after it."""
    promises: bool
    """Whether these two are promises: the operator handles event times, and emits no other rows."""
    is_last: bool
    """Whether no other stateful operator processes its rows."""


@dataclass(frozen=True, slots=True)
class BatchWatermarks:
    """The stateful operators of one batch, from the sink down."""

    batch: int
    operators: tuple[OperatorWatermark, ...]
    is_complete: bool
    """Whether the output mode is complete."""
    has_stateless_rows: bool
    """Whether rows of a source reach the sink without a stateful operator."""
    has_late: bool = True
    """Whether ``late`` is the watermark of the batch before. Without ``statefulOperator.allowMultiple`` Spark has one
    watermark for both, and ``late`` is that by which the batch emits rows."""
    windows: Windows | None = None
    """Those that it aggregates by, as ``read_watermarks`` alone finds them; ``None`` without any, or where their ends
    are not known before their rows."""

    @property
    def depends_on_sources(self) -> bool:
        """Whether rows reach the sink of which no operator states anything, so that the sources' watermarks count."""
        return self.has_stateless_rows or not any(operator.is_last for operator in self.operators)


def read_watermarks(
    query: StreamingQuery, before: BatchWatermarks | NoWatermark | None = None, *, only_last: bool = False
) -> BatchWatermarks | NoWatermark:
    """Return what the operators of the query's newest batch state, whether it is committed or not.

    Takes some ten milliseconds of the driver, none of the query's own thread.

    Args:
        query: of Spark Classic.
        before: of an earlier batch of the same run: what is the same for all batches of a run is taken from it.
        only_last: leave out the operators whose rows another one processes; ``output_of`` does not need them.

    Raises:
        UsageError: the query runs by Spark Connect.
    """
    execution = execution_of(query).lastExecution()
    found = batch_watermarks(execution, before, only_last=only_last)
    if isinstance(before, BatchWatermarks) or isinstance(found, NoWatermark):
        return found
    return replace(found, windows=windows_in(str(execution.analyzed().toString())))


def batch_watermarks(
    execution: Any, before: BatchWatermarks | NoWatermark | None = None, *, only_last: bool = False
) -> BatchWatermarks | NoWatermark:
    """Return what the operators of a batch state, by its execution in Spark (``IncrementalExecution``), if it has one.

    The arguments are those of ``read_watermarks``. The query's own thread may ask: the plan's text is not made here.
    """
    if execution is None:
        return NoWatermark(Why.NO_BATCH)
    # To ask for a plan that is not there yet would make it, in a thread that is not the query's.
    if not execution.tracker().phases().contains("planning"):
        return NoWatermark(Why.PLANNING)
    known = before.operators if isinstance(before, BatchWatermarks) else ()
    operators = tuple(_operators(execution.executedPlan(), known, only_last=only_last))
    batch = int(execution.currentBatchId())
    if isinstance(before, BatchWatermarks):
        return replace(before, batch=batch, operators=operators)
    return BatchWatermarks(
        batch=batch,
        operators=operators,
        is_complete=str(execution.outputMode()) == "Complete",
        has_stateless_rows=_has_stateless_rows(execution.analyzed()),
        has_late=str(execution.sparkSession().conf().get(_SEVERAL, "true")) == "true",
    )


def has_begun_another(query: StreamingQuery, batch: int) -> bool:
    """Return whether Spark has rows for a batch after this one, or has begun it: it may write from now on."""
    status = query._jsq.status()  # noqa: SLF001 - without the JSON of Spark's own method
    execution = execution_of(query).lastExecution()
    return bool(status.isDataAvailable()) or (execution is not None and int(execution.currentBatchId()) > batch)


def trigger_interval(query: StreamingQuery) -> int | None:
    """Return the milliseconds from one look for rows to the next; ``None`` for a trigger of another kind."""
    trigger = execution_of(query).trigger()
    return int(trigger.intervalMs()) if trigger.getClass().getSimpleName() == _BY_INTERVAL else None


def executed_batch(progress: Mapping[str, Any]) -> int | None:
    """Return the last batch that was committed as of a progress event; ``None`` before the first.

    Events of an idle query have the number of the next batch, which is not even planned. Their durations have no
    ``addBatch``.
    """
    batch = int(progress.get("batchId", 0)) - ("addBatch" not in progress.get("durationMs", {}))
    return batch if batch >= 0 else None


def newest(
    before: BatchWatermarks | NoWatermark | None, read: BatchWatermarks | NoWatermark | None, committed: int | None
) -> BatchWatermarks | NoWatermark | None:
    """Return what counts of two readings of one run: the earlier one while the later one has no output watermark,
    because Spark plans or executes the batch after the last ``committed`` one."""
    is_between = read == NoWatermark(Why.PLANNING)
    if isinstance(read, BatchWatermarks) and not read.has_late:
        is_between = committed is None or read.batch > committed
    return before if is_between and isinstance(before, BatchWatermarks) else read


def output_of(
    batch: BatchWatermarks | NoWatermark, progress: Mapping[str, Any] | None, *, is_bounded: bool = False
) -> OutputWatermark:
    """Return the watermark of all rows written after the batch of a progress event. Pure.

    ``batch`` may be a later one: then Spark has committed the one before it, and what it drops as late counts. Or an
    earlier one, which states less.
    ``is_bounded``: an operator without a promise counts with the watermark that entered it, because the caller knows
    how far behind it the operator's rows can be.
    """
    if isinstance(batch, NoWatermark):
        return batch
    committed = None if progress is None else executed_batch(progress)
    if progress is None or committed is None:
        return NoWatermark(Why.NO_BATCH)
    return output_after(batch, committed, progress["sources"], is_bounded=is_bounded)


def output_after(
    batch: BatchWatermarks, committed: int, sources: Sequence[Mapping[str, Any]], *, is_bounded: bool
) -> OutputWatermark:
    """Return the watermark of all rows written after the ``committed`` batch, or one that is about to be. Pure.

    ``sources``: the query's, with the description and the ``endOffset`` of each after that batch, where it
    ``depends_on_sources``.
    """
    is_committed = batch.batch <= committed
    if batch.is_complete or not (is_committed or batch.has_late):
        return NoWatermark(Why.COMPLETE_MODE if batch.is_complete else Why.PLANNING)
    last = [operator for operator in batch.operators if operator.is_last]
    if not is_bounded and (without := [operator for operator in last if not operator.promises]):
        return NoWatermark(Why.NO_PROMISE, without[0].name)
    stated = [_after(operator, is_committed=is_committed) for operator in last]
    if batch.depends_on_sources:
        of_sources = _of_sources(sources)
        if isinstance(of_sources, NoWatermark):
            return of_sources
        stated += of_sources
    watermarks = [watermark for watermark in stated if watermark is not None]
    # One without a watermark may still emit any row.
    return min(watermarks) if len(watermarks) == len(stated) > 0 else NoWatermark(Why.NO_WATERMARK)


def _after(operator: OperatorWatermark, *, is_committed: bool) -> Millis | None:
    if operator.promises:
        return operator.output if is_committed else operator.output_before
    return operator.eviction if is_committed else operator.late


def _of_sources(sources: Sequence[Any]) -> list[Millis | None] | NoWatermark:
    found: list[Millis | None] = []
    for source in sources:
        offset = own_offset(source["endOffset"])
        if offset is None:
            return NoWatermark(Why.FOREIGN_SOURCE, str(source["description"]))
        watermark = offset.get("wm")
        found.append(None if watermark is None else _or_end(Millis(int(watermark))))
    return found


def _or_end(watermark: Millis) -> Millis:
    """Return the end of time for ``LAST``, which a source has once all writers that it follows have ended."""
    return MAX if watermark >= LAST else watermark


# What Spark's driver process answers over Py4J.


def sources_of(execution: Any) -> list[Mapping[str, Any]]:
    """Return the sources of a query and the ends of its batch under way, as its progress event has them later."""
    ends = execution.availableOffsets()
    found: list[Mapping[str, Any]] = []
    for source in scala_items(execution.sources()):
        end = _option(ends.get(source))
        found.append({"description": str(source.toString()), "endOffset": None if end is None else str(end.json())})
    return found


def execution_of(query: StreamingQuery) -> Any:
    """Return what executes a query in Spark's driver process; raises ``UsageError`` for one of Spark Connect."""
    handle = getattr(query, "_jsq", None)
    if handle is None:
        raise UsageError(
            "a query of Spark Connect shows its client no plan, so its operators cannot be asked for their watermarks; "
            "run the query in a Spark Classic session"
        )
    return handle.streamingQuery()


_WATERMARKS = ("eventTimeWatermarkForEviction", "eventTimeWatermarkForLateEvents", "produceOutputWatermark")
_BY_INTERVAL = "ProcessingTimeTrigger"
_COMPARISON = "watermarkExpressionForEviction"
_SEVERAL = "spark.sql.streaming.statefulOperator.allowMultiple"
_ANSWERS: dict[tuple[str, str], bool] = {}
"""Whether nodes of a class have a method, by both names: a call that fails costs more than all others."""
_HAVE_ONE_INPUT: dict[str, bool] = {}
"""Whether nodes of a class have one input and a method for it, which costs a third of the calls that a list takes."""


def _has(node: Any, kind: str, method: str) -> bool:
    if (kind, method) not in _ANSWERS:
        _ANSWERS[kind, method] = any(each.getName() == method for each in node.getClass().getMethods())
    return _ANSWERS[kind, method]


def _has_one_input(node: Any, kind: str) -> bool:
    if kind not in _HAVE_ONE_INPUT:
        # An exchange that is reused has a child, and no input.
        _HAVE_ONE_INPUT[kind] = _has(node, kind, "child") and node.children().size() == 1
    return _HAVE_ONE_INPUT[kind]


def _operators(plan: Any, known: Sequence[OperatorWatermark], *, only_last: bool) -> Iterator[OperatorWatermark]:
    before = iter(known)

    def found(node: Any, *, is_last: bool, is_checked: bool) -> Iterator[OperatorWatermark]:
        kind = str(node.getClass().getName())
        name = kind.rpartition(".")[2]
        if all(_has(node, kind, method) for method in _WATERMARKS):
            yield _operator(node, kind, next(before, None), is_last=is_last, is_checked=is_checked)
            if only_last:
                return
            is_last = is_checked = False
        elif name == _CHECKED_FUNCTIONS:
            is_checked = True
        for child in _inputs(node, kind, name):
            yield from found(child, is_last=is_last, is_checked=is_checked)

    yield from found(plan, is_last=True, is_checked=False)


def _inputs(node: Any, kind: str, name: str) -> Iterator[Any]:
    # These two hide the rest of the plan: adaptive execution plans stateless queries.
    if name == "AdaptiveSparkPlanExec":
        yield node.executedPlan()
    elif name.endswith("QueryStageExec"):
        yield node.plan()
    elif _has_one_input(node, kind):
        yield node.child()
    else:
        yield from scala_items(node.children())


def _operator(
    node: Any, kind: str, before: OperatorWatermark | None, *, is_last: bool, is_checked: bool
) -> OperatorWatermark:
    """Return what an operator states; ``before``: the one in its place in an earlier batch of the run, if known."""
    name = kind.rpartition(".")[2].removesuffix("Exec")
    late = _watermark(node.eventTimeWatermarkForLateEvents())
    eviction = _watermark(node.eventTimeWatermarkForEviction())
    if before is None or before.name != name or None in (before.eviction, eviction):
        operator, promises = _number(node), _promises(node, kind, eviction, is_checked=is_checked)
    else:
        # They are of the query, not of the batch: what an operator promises is known with its first watermark.
        operator, promises = before.operator, before.promises
    return OperatorWatermark(
        name=name,
        operator=operator,
        late=late,
        eviction=eviction,
        output_before=_produced(node, late),
        output=_produced(node, eviction),
        promises=promises,
        is_last=is_last,
    )


def _promises(node: Any, kind: str, eviction: Millis | None, *, is_checked: bool) -> bool:
    if _option(node.produceOutputWatermark(0)) is None:
        return False
    if kind.rpartition(".")[2].startswith(_FUNCTIONS):
        return is_checked or _is_own(node)
    if eviction is None:
        # What it compares with is known once there is a watermark.
        return True
    if _has(node, kind, "stateWatermarkPredicates"):
        # A join without a bound on the time of one side keeps its rows for ever, and joins them with any later one.
        bounds = node.stateWatermarkPredicates()
        return _option(bounds.left()) is not None and _option(bounds.right()) is not None
    # Without an event-time column among its own, it drops no row as late.
    return not _has(node, kind, _COMPARISON) or _option(node.watermarkExpressionForEviction()) is not None


def _is_own(node: Any) -> bool:
    entering = next(iter(scala_items(node.children())))
    return {str(column.name()) for column in scala_items(entering.output())} in _OWN_PACKS


def _produced(node: Any, watermark: Millis | None) -> Millis | None:
    if watermark is None or watermark == MAX:
        return watermark
    produced = _option(node.produceOutputWatermark(int(watermark)))
    return None if produced is None else Millis(int(produced))


def _number(node: Any) -> int | None:
    info = _option(node.stateInfo())
    return None if info is None else int(info.operatorId())


def _watermark(option: Any) -> Millis | None:
    value = _option(option)
    # Spark begins with 1970-01-01: no watermark.
    if value is None or int(value) <= 0:
        return None
    return MAX if int(value) > _END else Millis(int(value))


def _has_stateless_rows(node: Any) -> bool:
    """Return whether an analysed plan leads rows of a stream past every stateful operator."""
    if not bool(node.isStreaming()):
        return False
    children = list(scala_items(node.children()))
    if not children:
        return True
    name = str(node.getClass().getSimpleName())
    # One that is not known counts as stateless, so that the watermark is lower.
    if name in KEEP_STATE:
        return False
    if name == "Join" and all(bool(child.isStreaming()) for child in children):
        return False
    return any(_has_stateless_rows(child) for child in children)


def _option(option: Any) -> Any | None:
    return None if option.isEmpty() else option.get()
