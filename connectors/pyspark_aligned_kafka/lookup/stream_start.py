"""Where a stream begins in each partition: a new query by Spark's starting options, those found later at earliest."""

from __future__ import annotations

from collections.abc import Mapping, Set

from pyspark_aligned_kafka.lookup.log_bounds import OffsetQueries
from pyspark_aligned_kafka.lookup.position_lookup import KafkaPositionLookup
from pyspark_aligned_kafka.lookup.resolved_positions import PositionLookup, offsets_of, settle
from pyspark_aligned_kafka.options.positions import JSON_LATEST, At, PositionPolicy, positions_of
from watermark_source.errors import OptionError
from watermark_source.planning.split import Split


def resolve(policy: PositionPolicy, splits: Set[Split], lookup: PositionLookup) -> dict[Split, int]:
    """Return the offset each split begins at.

    Raises:
        OptionError: the option does not list exactly the splits, an offset is beyond the end of its log, or no record
            is as new as a timestamp.
    """
    chosen = positions_of(policy, splits)
    given = {split: position.offset for split, position in chosen.items() if isinstance(position, At)}
    for split, end in (lookup.latest(given.keys()) if given else {}).items():
        if given[split] > end:
            raise OptionError(
                policy.option, policy.text, f"{split} ends at {end}, before its offset {given[split]}",
                example=f"{JSON_LATEST}, which is its end",
            )  # fmt: skip
    return offsets_of(settle(policy, chosen, lookup), lookup)


class KafkaStartPositions:
    """``StartPositions`` of ``spark.connector``."""

    def __init__(self, admin: OffsetQueries, policy: PositionPolicy) -> None:
        self._policy = policy
        self._lookup = KafkaPositionLookup(admin)

    def initial_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Resolve the starting options; asks the brokers each time."""
        return resolve(self._policy, splits, self._lookup)

    def added_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return the earliest offsets, whatever the starting options are, as Spark does."""
        return self._lookup.earliest(splits)
