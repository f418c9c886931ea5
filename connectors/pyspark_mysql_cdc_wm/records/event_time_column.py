"""The column of tables that is event time, and the moments that its values are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

MOMENT = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class EventTimeColumn:
    """A TIMESTAMP or DATETIME column, by its name in any case."""

    name: str
    zone: str = "UTC"
    """Whose clocks a DATETIME is of."""

    def __str__(self) -> str:
        zone = "" if self.zone == "UTC" else f" ({self.zone})"
        return f"eventTimeColumn = {self.name.lower()}{zone}"

    def among(self, names: Iterable[str]) -> str | None:
        """Return which of the names is this column's, as it is spelled there."""
        return next((name for name in names if name.lower() == self.name.lower()), None)

    def moments(self, values: pa.Array) -> pa.Array:
        """Return the column's values as ``MOMENT``.

        Of an hour that clocks show twice the first is meant; an hour that they leave out is the moment it is left out.

        Raises:
            pyarrow.ArrowInvalid: there is no such zone here.
        """
        if values.type.tz is None:
            values = pc.assume_timezone(values, self.zone, ambiguous="earliest", nonexistent="latest")
        return values.cast(MOMENT)
