"""The ``aligned-kafka`` source as one query configured it: what the engine opens on the driver and reads in tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark_aligned_kafka import checkpoint, options
from pyspark_aligned_kafka.admin import KafkaAdmin
from pyspark_aligned_kafka.bounds import KafkaLogBounds
from pyspark_aligned_kafka.discovery import KafkaDiscovery
from pyspark_aligned_kafka.options import KafkaOptions
from pyspark_aligned_kafka.start_positions import KafkaStartPositions
from pyspark_aligned_kafka.time_index import KafkaTimeIndex
from watermark_source.planning.split import Split
from watermark_source.spark.connector import Connector, RangeReader


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """``SourceDefinition`` of connector.py."""

    options: KafkaOptions

    @classmethod
    def of(cls, given: Mapping[str, str]) -> KafkaSource:
        """Check the user's options; raises ``OptionError``. Nothing is connected to."""
        return cls(options.parse(given))

    @property
    def name(self) -> str:
        """The format's name."""
        return options.FORMAT

    @property
    def range_reader(self) -> RangeReader:
        """The executor side."""
        return self._reader(self.options.columns)

    @property
    def observing_reader(self) -> RangeReader:
        """The executor side without columns, for event times alone."""
        return self._reader(())

    def _reader(self, columns: tuple[str, ...]) -> RangeReader:
        # The reader brings numba with it, which takes its time and is not needed to check options.
        from pyspark_aligned_kafka.reading import KafkaRangeReader  # noqa: PLC0415

        return KafkaRangeReader(
            client=self.options.client,
            columns=columns,
            read_committed=self.options.client.read_committed,
            fail_on_data_loss=self.options.fail_on_data_loss,
            poll_timeout_ms=self.options.poll_timeout_ms,
        )

    def open(self) -> Connector:
        """Return the driver side; it connects on first use."""
        admin = KafkaAdmin(self.options.client)
        return Connector(
            discovery=KafkaDiscovery(
                admin, self.options.subscription, max_age_ms=self.options.client.millis("metadata.max.age.ms")
            ),
            starts=KafkaStartPositions(admin, self.options.start),
            bounds=KafkaLogBounds(admin),
            time_index=KafkaTimeIndex(admin),
        )

    def foreign_positions(self, offset: Mapping[str, Any]) -> Mapping[Split, int] | None:
        """Read an offset of Spark's own Kafka source, or return ``None``."""
        return checkpoint.foreign_positions(offset)
