"""``AlignedDataSource``: what makes a format of a connector, from its options and its source definition."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.datasource import DataSource

from watermark_source.option_table import Option, OptionTable, at_least_one, one_of, true_or_false
from watermark_source.planning.watermark import WatermarkCharacteristic
from watermark_source.spark_process import says_why

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader
    from pyspark.sql.types import StructType

    from watermark_source.contract.abilities import Abilities
    from watermark_source.contract.stream import SourceDefinition
    from watermark_source.spark.options import EngineOptions
    from watermark_source.spark.stream_reader import AlignedStreamReader


# The options of a connector that has no others for the same: where a new query begins, limits, loss.


EARLIEST = "earliest"
LATEST = "latest"

STREAM_OPTIONS: tuple[Option, ...] = (
    one_of(
        name="startingOffsets",
        choices=(EARLIEST, LATEST),
        default=LATEST,
        example=EARLIEST,
        doc="Where a new query begins: at the first row there is, or after the last one.",
    ),
    at_least_one(
        name="maxRowsPerTrigger",
        default_text="no limit",
        example="1000000",
        doc="The most rows of one batch. The trigger Once reads everything in one batch all the same.",
    ),
    true_or_false(
        name="failOnDataLoss",
        default=True,
        example="true",
        doc="Whether rows that are gone before they were read end the query. With false they are skipped, and a "
        "warning says so.",
    ),
)


class AlignedDataSource(DataSource):
    """A format for ``spark.readStream``, which Spark finds as ``DefaultSource`` of a module named ``pyspark_…``.

    A subclass says what is its system's own. It has the options of ``STREAM_OPTIONS`` and ``ENGINE_OPTIONS`` beside
    ``own_options``, each checked at ``load()``, and takes no schema from the user. Importing this is cheap and loads no
    part of the engine: Spark imports the modules of all formats to find one.
    """

    format_name: ClassVar[str]
    own_options: ClassVar[tuple[Option, ...]] = ()
    characteristic: ClassVar[WatermarkCharacteristic] = WatermarkCharacteristic.ANY_WATERMARK
    """What is declared of its watermarks (FLIP-326): as the planner makes them, a watermark says so when time is the
    clock's."""

    def abilities(self, values: Mapping[str, Any]) -> Abilities:
        """Return what the connector can do for a watermark strategy; by default nothing but event times.

        Strategies that need more are refused at ``load()``. Arguments as of ``columns``.
        """
        from watermark_source.contract.abilities import Abilities  # noqa: PLC0415 - see the class's docstring

        return Abilities()

    def begins_with_snapshot(self, values: Mapping[str, Any]) -> bool:
        """Return whether a new query reads what tables hold first, and has no watermark before that is complete.

        By default it does not. Joins on processing time wait for it on their build side.
        """
        return False

    def columns(self, values: Mapping[str, Any]) -> StructType:
        """Return the system's own columns; ``event_time`` and ``marker`` come after them.

        Args:
            values: every option's value by its name in the tables.

        Raises:
            WatermarkSourceError: options, or a system, with which it cannot work.
        """
        raise NotImplementedError

    def source(self, values: Mapping[str, Any]) -> SourceDefinition:
        """Return the source as the user configured it; arguments and errors as of ``columns``."""
        raise NotImplementedError

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return cls.format_name

    @says_why
    def schema(self) -> StructType:
        """Check the options and return the stream's schema."""
        from watermark_source.spark.table_options import kept_in_schema  # noqa: PLC0415 - see the class's docstring

        values, engine = self._parsed(self.options)
        secrets = {option.name.lower() for option in self._table().options if option.secret}
        return kept_in_schema(self._schema(values, engine), self.options, secrets.__contains__)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader; its first call raises what ``schema`` does, or ``SchemaError`` for one of the user's."""
        from watermark_source.spark.stream_reader import made_or_refused  # noqa: PLC0415 - see the class's docstring

        return made_or_refused(partial(self._reader, schema))

    def _table(self) -> OptionTable:
        from watermark_source.spark.option_rows import ENGINE_OPTIONS  # noqa: PLC0415

        own = ", ".join(option.name for option in (*self.own_options, *STREAM_OPTIONS))
        return OptionTable(
            (*self.own_options, *STREAM_OPTIONS, *ENGINE_OPTIONS),
            where_all_are=f"{self.format_name} has {own}, and those of every source (docs/options.md)",
        )

    def _parsed(self, given: Mapping[str, str]) -> tuple[dict[str, Any], EngineOptions]:
        from watermark_source.spark.options import EngineOptions  # noqa: PLC0415

        values = self._table().parse(given)
        return values, EngineOptions.of(values, format_name=self.name(), given=given, abilities=self.abilities(values))

    def _schema(self, values: Mapping[str, Any], engine: EngineOptions) -> StructType:
        from watermark_source.spark.stream_reader import stream_schema  # noqa: PLC0415

        snapshot = self.begins_with_snapshot(values)
        return stream_schema(self.columns(values), engine, self.characteristic, begins_with_snapshot=snapshot)

    def _reader(self, schema: StructType) -> AlignedStreamReader:
        from watermark_source.spark.stream_reader import AlignedStreamReader, refuse_user_schema  # noqa: PLC0415
        from watermark_source.spark.table_options import taken_from_schema  # noqa: PLC0415

        given, schema = taken_from_schema(schema, self.options)
        values, engine = self._parsed(given)
        refuse_user_schema(schema, self._schema(values, engine), self.name())
        return AlignedStreamReader(
            self.source(values),
            engine,
            schema,
            max_rows=values["maxRowsPerTrigger"],
            fail_on_data_loss=values["failOnDataLoss"],
        )
