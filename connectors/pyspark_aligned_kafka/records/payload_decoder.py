"""Keys or values of located records, decoded to columns as the user chose."""

from __future__ import annotations

from pyspark_aligned_kafka.records.columns import id_scan
from pyspark_aligned_kafka.records.payload import Decoded, PayloadChoice, Values
from pyspark_aligned_kafka.records.payload_formats import payload_reader
from pyspark_aligned_kafka.records.record_fields import Located


class PayloadDecoder:
    """Decodes the keys or the values of located records. Scratch memory is kept: it serves one read at a time."""

    __slots__ = ("_field", "_ids", "_reader")

    def __init__(self, choice: PayloadChoice) -> None:
        self._field, self._reader = choice.field, payload_reader(choice)
        self._ids = id_scan(choice.field) if choice.framed else None

    def decode(self, located: Located) -> Decoded:
        """Return the decoded keys or values.

        Raises:
            PayloadError: with the mode FAILFAST, the first that is bad.
            CorruptDataError: headers that do not fit their record.
        """
        header = None if self._ids is None else self._ids.find_any(located)
        starts, lengths = located.places(self._field)
        return self._reader.read(Values(located.split, located.data, starts, lengths, located.offsets), header)
