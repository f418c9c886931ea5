"""What a source declares about its time, in the metadata of a column: how operators know it before a row has come.

The source writes it to its ``marker`` column, ``follow_watermark`` carries it to the event-time column, and Spark
keeps it there through ``select``, renames, filters and unions of equals; a column that is computed has none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import Field, dataclass, fields
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote, unquote

from watermark_source.planning.policy import AfterCatchUp, GroupHold
from watermark_source.planning.watermark import WatermarkCharacteristic
from watermark_source.spark.column_names import DECLARED, EVENT_TIME, KEY
from watermark_source.words import NO_WORDS, Words

if TYPE_CHECKING:
    from watermark_source.contract.stream import SourceDefinition
    from watermark_source.spark.options import EngineOptions
    from watermark_source.spark.plan_steps import Step

_SAID = ("dated_by", "clock", "undated_delete", "reads_first")
"""Those of a connector's words that ``follow_watermark`` and joins say."""


_ALWAYS = frozenset(("source", "characteristic", "processing_time", "holds_group", "begins_with_snapshot"))
"""What metadata has of each source; of the rest what is not the default."""


@dataclass(frozen=True, slots=True)
class SourceTime:
    """One source's time."""

    source: str
    characteristic: WatermarkCharacteristic
    processing_time: bool
    """Whether event time is the clock."""
    group: str | None = None
    """The alignment group in which it meets other sources; ``None``: it is in no group with others."""
    holds_group: bool = False
    """Whether the other members of the group wait until its snapshots are complete."""
    begins_with_snapshot: bool = False
    """Whether it begins with snapshots, or with its logs up to their ends, and has no watermark before."""
    reads_to_end_first: bool = False
    """Whether that is its logs, whose rows are changes of keys (``whenCaughtUp`` ``watermark``)."""
    deletion_time: str | None = None
    """The column with the time of a deletion, where the row that reports it has the deleted row's event time."""
    change_columns: tuple[str, ...] = ()
    """The column of the kind of change, then those that order changes; none where rows are not changes of a table."""
    default_times: tuple[str, ...] = ()
    """The columns with the times that its watermark is about, such as a record's timestamp; none where an option names
    these times, or where they are not those of rows."""
    named_times: tuple[str, ...] = ()
    """These columns where an option names these times."""
    becomes_clock: bool = False
    """Whether it changes from event times to the clock (``whenCaughtUp`` ``clock``)."""
    batch_clock: bool = False
    """Whether its watermark is the time of Spark's batches (``follow_clock``), and not one of a source."""
    words: Words = NO_WORDS
    """Those that operators say (``_SAID``); the others have their defaults."""

    @classmethod
    def of(
        cls, source: SourceDefinition, options: EngineOptions, characteristic: WatermarkCharacteristic
    ) -> SourceTime:
        """Return a source's time by the user's options and the connector's declaration."""
        group, reads_first = options.group, options.policy.after_catch_up is AfterCatchUp.WATERMARK
        begins = source.begins_with_snapshot or reads_first
        meets = group is not None and group.store is not None
        by_rows = options.policy.strategy.tasks_observe.is_event_times
        times = (EVENT_TIME, *source.time_columns) if by_rows else ()
        return cls(
            source=options.source_name,
            characteristic=characteristic,
            processing_time=options.policy.strategy.is_clock,
            group=group.name if group is not None and meets else None,
            holds_group=meets and begins and options.policy.alignment.hold is not GroupHold.NOTHING,
            begins_with_snapshot=begins,
            reads_to_end_first=reads_first,
            deletion_time=source.deletion_time_column,
            change_columns=tuple(source.change_columns),
            default_times=times if source.event_time is None else (),
            named_times=() if source.event_time is None else times,
            becomes_clock=options.policy.after_catch_up is AfterCatchUp.CLOCK,
            words=Words(**{name: getattr(source.words, name) for name in _SAID}),
        )

    @classmethod
    def of_metadata(cls, metadata: Mapping[str, Any]) -> Self | None:
        """Read a column's metadata; ``None`` where nothing is declared."""
        declared = metadata.get(KEY)
        if not isinstance(declared, Mapping):
            return None
        given = {name: declared[key] for name, key in _KEYS.items() if key in declared}
        lists = {name: tuple(value) for name, value in given.items() if isinstance(value, list)}
        characteristic = WatermarkCharacteristic(given.pop("characteristic"))
        # A table keeps them, and may be of another release.
        words = Words(**{name: text for name, text in given.get("words", {}).items() if name in _SAID})
        return cls(**{**given, **lists, "characteristic": characteristic, "words": words})

    @property
    def times(self) -> tuple[str, ...]:
        """The columns with the times that its watermark is about."""
        return self.default_times or self.named_times

    @property
    def announces_processing_time(self) -> bool:
        """Whether it declares that a watermark will announce when time is the clock (FLIP-326)."""
        return self.characteristic is WatermarkCharacteristic.ANY_WATERMARK

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of a column that declares this."""
        declared = {_KEYS[each.name]: getattr(self, each.name) for each in fields(self) if self._is_declared(each)}
        declared["characteristic"] = self.characteristic.value
        if words := {name: text for name in _SAID if (text := getattr(self.words, name)) != getattr(NO_WORDS, name)}:
            declared["words"] = words
        return {KEY: {key: list(value) if isinstance(value, tuple) else value for key, value in declared.items()}}

    def _is_declared(self, each: Field[Any]) -> bool:
        return each.name in _ALWAYS or (each.name != "words" and getattr(self, each.name) != each.default)

    def in_plan(self) -> str:
        """Return a text of this by which a plan shows it: Spark Connect shows no metadata."""
        # In a text of Spark's, a space, a parenthesis or a bracket would end it.
        return quote(json.dumps(self.metadata[KEY], separators=(",", ":")), safe='{}":,')

    @classmethod
    def of_plan(cls, plan: Step) -> Self | None:
        """Return what a projection of a plan declares; ``None`` of another operator."""
        numbers = [column.number for column in plan.output if column.name == DECLARED and column.number in plan.made]
        return cls.of_metadata({KEY: json.loads(unquote(plan.made[numbers[0]]))}) if numbers else None


_KEYS: Mapping[str, str] = {each.name: re.sub("_(.)", lambda m: m[1].upper(), each.name) for each in fields(SourceTime)}
"""The keys of fields in metadata."""
