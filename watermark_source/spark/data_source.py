"""``AlignedDataSource``: what makes a format of a connector, from its options and its source definition."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructField, StructType

from watermark_source.errors import OptionError, UsageError, WatermarkSourceError
from watermark_source.installation import need, need_compiler
from watermark_source.option_table import (
    Option,
    OptionTable,
    at_least_one,
    is_of_table,
    one_of,
    options_of_table,
    true_or_false,
)
from watermark_source.planning.watermark import WatermarkCharacteristic
from watermark_source.spark.column_names import EVENT_TIME
from watermark_source.spark.garbage_collector import collect_later
from watermark_source.spark_process import hides_own_frames
from watermark_source.supported_spark import need_supported_spark

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader

    from watermark_source.contract.batch_read import BatchDefinition
    from watermark_source.contract.stream import SourceDefinition
    from watermark_source.planning.policy import RowLimits
    from watermark_source.planning.strategy import Abilities
    from watermark_source.spark.options import SourceOptions
    from watermark_source.spark.stream_reader import AlignedStreamReader

_log = logging.getLogger(__name__)

# Where a new query begins, limits and losses: the options of a format that brings no table of its own.


EARLIEST = "earliest"
"""Where a new query begins: at the first existing row."""
LATEST = "latest"
"""Where a new query begins: after the last row."""

STREAM_OPTIONS: tuple[Option, ...] = (
    one_of(
        name="startingOffsets",
        choices=(EARLIEST, LATEST),
        default=LATEST,
        example=EARLIEST,
        doc="Where a new query begins: at the first existing row, or after the last one.",
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
        doc="Whether the query fails when rows expired before they were read. With false they are skipped, and a "
        "warning names them.",
    ),
)
"""The rows that ``AlignedDataSource`` adds to ``own_options``: where a new query begins, limits and losses."""


class AlignedDataSource(DataSource):
    """A format for ``spark.readStream`` and ``spark.read``: a subclass names its options and makes its definition.

    Spark finds a format by itself if a module on ``sys.path`` is named ``pyspark_…`` and has it as ``DefaultSource``.
    It imports all such modules to find one, so importing this class is cheap and loads no part of the engine. All
    options are checked at ``load()``; a schema given by the user is refused.
    """

    format_name: ClassVar[str]
    own_options: ClassVar[tuple[Option, ...]] = ()
    """The format's own options, beside those of every source and ``STREAM_OPTIONS``."""
    needed_packages: ClassVar[tuple[str, ...]] = ()
    """Packages that the connector imports beside Spark and pyarrow: a missing one is an error at ``load()``. ``numba``
    is needed only where the connector was installed without its machine code."""
    requirement: ClassVar[str] = ""
    """What pip installs them by, such as ``my-connector[all]``."""
    task_module: ClassVar[str] = ""
    """The module that tasks import to read ranges: ``watermark_source.spark.executor.worker_daemon`` imports it before
    it forks workers. It must start no threads."""
    characteristic: ClassVar[WatermarkCharacteristic] = WatermarkCharacteristic.ANY_WATERMARK
    """Which watermarks operators may expect (FLIP-326). The default is right where the planner makes them."""
    _own_from: str | None = None
    """Where ``schema`` found a watermark strategy of the user's own. Spark pickles this object after that, and passes
    py-files to the process that calls it, but not to the one that plans."""

    def option_table(self) -> OptionTable:
        """Return the table that options are checked by: ``own_options``, ``STREAM_OPTIONS`` and those of every source.

        A format with a table of its own includes ``ENGINE_OPTIONS`` and ``failOnDataLoss`` in it.
        """
        from watermark_source.spark.option_rows import ENGINE_OPTIONS, ONLY_IN_STREAMS, RENAMED  # noqa: PLC0415

        own = (*self.own_options, *STREAM_OPTIONS)
        return OptionTable(
            (*own, *ENGINE_OPTIONS),
            only_in_streams=(*(option.name for option in STREAM_OPTIONS[:2]), *ONLY_IN_STREAMS),
            where_all_are=f"{self.format_name} has {', '.join(option.name for option in own)}, and those of every "
            "source (docs/options.md)",
            renamed=RENAMED,
        )

    def abilities(self, values: Mapping[str, Any]) -> Abilities:
        """Return what the connector can do for a watermark strategy; by default nothing but event times.

        Args:
            values: every option's value by its name in the table.

        Raises:
            OptionError: a strategy that the connector refuses for a reason of its own. Strategies that need more than
                its abilities are refused with a general reason.
        """
        from watermark_source.planning.strategy import Abilities  # noqa: PLC0415 - see the class's docstring

        return Abilities()

    def source_options(self, given: Mapping[str, str]) -> SourceOptions:
        """Check what the user wrote, without connecting; raises ``OptionError``."""
        from watermark_source.spark.options import SourceOptions  # noqa: PLC0415 - see the class's docstring

        return SourceOptions.of(self.option_table(), given, format_name=self.name(), abilities=self.abilities)

    def row_limits(self, options: SourceOptions) -> RowLimits:
        """Return how many rows a batch of a stream has; by default at most ``maxRowsPerTrigger``."""
        from watermark_source.planning.policy import RowLimits  # noqa: PLC0415 - see the class's docstring

        return RowLimits(options["maxRowsPerTrigger"])

    def source(self, options: SourceOptions) -> SourceDefinition:
        """Return the source as the user configured it.

        Raises:
            WatermarkSourceError: options, or a system, with which it cannot work.
        """
        raise NotImplementedError

    def check_stream(self, options: SourceOptions) -> None:
        """Raise ``OptionError`` for options that only a batch takes; by default there are none. Does not connect."""

    def batch(self, options: SourceOptions) -> BatchDefinition:
        """Return what a batch read with these options reads; see ``WholeLogs``. Does not connect.

        Raises:
            UsageError: there is no batch read, which is the default.
            OptionError: options that only a stream takes.
        """
        raise UsageError(
            f'format("{self.name()}") is a stream: use spark.readStream; with the trigger AvailableNow it reads up '
            "to the current end and stops"
        )

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return cls.format_name

    @hides_own_frames
    @collect_later()
    def schema(self) -> StructType:
        """Check the options and return the schema, which is the same in a stream and in a batch."""
        self._need()
        options = self.source_options(self.options)
        if (users_class := options.engine.policy.strategy.users_class) is not None:
            self._own_from = imported_from(users_class)
        schema = self._schema(self.source(options), options)
        return kept_in_schema(schema, self.options, self.option_table().is_secret)

    @hides_own_frames
    @collect_later()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader; its first call raises what ``schema`` does, or ``SchemaError`` for a user's schema."""
        self._need()
        if self._own_from is not None and self._own_from not in sys.path:
            sys.path.append(self._own_from)
        from watermark_source.spark.stream_reader import RefusedStreamReader  # noqa: PLC0415 - see the class's docstring

        try:
            return self._stream_reader(schema)
        except WatermarkSourceError as reason:
            return RefusedStreamReader(reason)

    @hides_own_frames
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the batch's reader; raises what ``schema`` does, or ``SchemaError`` for a user's schema.

        A warning names the given options that only a stream takes.
        """
        self._need()
        from watermark_source.spark.batch_reader import AlignedBatchReader, NarrowingBatchReader  # noqa: PLC0415
        from watermark_source.spark.stream_schema import refuse_user_schema  # noqa: PLC0415

        options, schema = self._given(schema)
        batch = self.batch(options)
        refuse_user_schema(schema, self._schema(self.source(options), options), self.name())
        if ignored := self.option_table().ignored_in_batch(options.given):
            _log.warning("A batch read ignores %s", ", ".join(ignored))
        kind = NarrowingBatchReader if batch.takes_filters else AlignedBatchReader
        return kind(batch, options.engine, schema)

    def _need(self) -> None:
        need_supported_spark()
        packages = [each for each in self.needed_packages if each != "numba"]
        need(("pyarrow", *packages), self.name(), requirement=self.requirement)
        if len(packages) < len(self.needed_packages):
            need_compiler(type(self).__module__.partition(".")[0], self.name())

    def _schema(self, source: SourceDefinition, options: SourceOptions) -> StructType:
        from watermark_source.spark.source_time import SourceTime  # noqa: PLC0415 - see the class's docstring
        from watermark_source.spark.stream_schema import stream_schema  # noqa: PLC0415 - as above

        declared = SourceTime.of(source, options.engine, self.characteristic)
        return stream_schema(source.columns, options.engine, declared)

    def _given(self, schema: StructType) -> tuple[SourceOptions, StructType]:
        """Return the options, those of a table included, and the schema without them."""
        given, schema = taken_from_schema(schema, self.options)
        return self.source_options(given), schema

    def _stream_reader(self, schema: StructType) -> AlignedStreamReader:
        from watermark_source.planning.policy import OnLoss  # noqa: PLC0415
        from watermark_source.spark.stream_reader import AlignedStreamReader  # noqa: PLC0415
        from watermark_source.spark.stream_schema import refuse_user_schema  # noqa: PLC0415

        options, schema = self._given(schema)
        self.check_stream(options)
        source = self.source(options)
        refuse_user_schema(schema, self._schema(source, options), self.name())
        limits, losses = self.row_limits(options), OnLoss(fails=options["failOnDataLoss"])
        policy = replace(options.engine.policy, minimum_rows=limits.minimum, on_loss=losses)
        return AlignedStreamReader(source, replace(options.engine, policy=policy), schema, limits.most)


def imported_from(cls: str) -> str:
    """Return the folder or archive from which an imported class comes, as ``sys.path`` names it.

    Args:
        cls: ``package.module:Class``.
    """
    package = sys.modules[re.split("[.:]", cls)[0]]
    if hasattr(package, "__path__"):
        return str(Path(next(iter(package.__path__))).parent)
    return str(Path(package.__file__ or "").parent)


# The options of a table (``CREATE TABLE ... USING``), kept in its schema: Spark 4.3 gives them to a Python source once,
# when it infers the schema. A reader of the table gets the schema, and the options of the read alone.


_KEPT, _LEFT_OUT = "watermarkSource.options", "watermarkSource.secrets"


def kept_in_schema(schema: StructType, given: Mapping[str, str], is_secret: Callable[[str], bool]) -> StructType:
    """Return the schema of a table with its options but no secrets; without a table, the schema as it is.

    Args:
        schema: the source's own.
        given: the options as Spark hands them over.
        is_secret: whether an option of this name, in lower case, is a secret.
    """
    if not is_of_table(given):
        return schema
    options = {name.lower(): str(text) for name, text in options_of_table(given).items()}
    secrets = sorted(name for name in options if is_secret(name))
    about = {_KEPT: {name: text for name, text in options.items() if name not in secrets}, _LEFT_OUT: secrets}
    fields = ((f, {**f.metadata, **about} if f.name == EVENT_TIME else f.metadata) for f in schema)
    return StructType([StructField(f.name, f.dataType, f.nullable, metadata) for f, metadata in fields])


def taken_from_schema(schema: StructType, given: Mapping[str, str]) -> tuple[dict[str, str], StructType]:
    """Return the options of a read, those of its table included, and the schema as the source made it.

    Raises:
        OptionError: the table was made with a secret, which the read does not give.
    """
    options = {name.lower(): str(text) for name, text in given.items()}
    fields = []
    for field in schema.fields:
        about = dict(field.metadata or {})
        options = {**about.pop(_KEPT, {}), **options}
        if lacking := [name for name in about.pop(_LEFT_OUT, ()) if name not in options]:
            raise OptionError(
                lacking[0],
                None,
                "is a secret, which is not kept with a table: give it where the table is read",
                example=f'spark.readStream.option("{lacking[0]}", …).table(…)',
            )
        fields.append(StructField(field.name, field.dataType, field.nullable, about))
    return options, StructType(fields)
