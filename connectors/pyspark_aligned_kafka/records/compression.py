"""Codecs of record batches (gzip, snappy, lz4, zstd): decompression into reused memory, with a limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import cramjam
import numpy as np
import zstandard

from pyspark_aligned_kafka.errors import place
from pyspark_aligned_kafka.records.record_batches import Bytes
from watermark_source.errors import CorruptDataError, UnsupportedFormatError
from watermark_source.planning.split import Split

_GZIP, _SNAPPY, _LZ4, _ZSTD = 1, 2, 3, 4
_INTO: Final[dict[int, Callable[[Any, Any], int]]] = {
    _GZIP: cramjam.gzip.decompress_into, _LZ4: cramjam.lz4.decompress_into
}  # fmt: skip

# snappy-java's framing, which Kafka's own producers write: magic, version, compatible version, then blocks of
# a four-byte length and raw snappy. What was framed in parts has the header in front of each.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16
_FIRST_GUESS = 4
_SMALLEST_GUESS = 64 * 1024


class _TooLargeError(Exception):
    """The batch needs more room than there is."""


class _RoomUsedUpError(Exception):
    """There is more than the room held."""


class Arena:
    """Memory that decompressed batches are put into one after another; a batch may take ``limit`` bytes at most."""

    __slots__ = ("_limit", "_zstd_context", "memory", "used")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._zstd_context = zstandard.ZstdDecompressor()
        self.memory: Bytes = np.empty(0, np.uint8)
        self.used = 0

    def clear(self) -> None:
        """Forget what is in it; the memory stays."""
        self.used = 0

    def add(self, split: Split, offset: int, codec: int, packed: Bytes) -> tuple[int, int]:
        """Decompress one batch's records and return where they lie.

        Raises:
            CorruptDataError: the bytes are not what the codec makes, or become more than ``limit`` bytes.
            UnsupportedFormatError: a codec that does not exist.
        """
        try:
            if codec == _SNAPPY:
                size = self._snappy(packed)
            else:
                size = self._stream(self._zstd_into if codec == _ZSTD else _INTO[codec], packed)
        except KeyError:
            raise UnsupportedFormatError(
                f"{place(split, offset)}: compression codec {codec}; known are 1 gzip, 2 snappy, 3 lz4, 4 zstd"
            ) from None
        except _TooLargeError:
            raise CorruptDataError(
                f"{place(split, offset)}: a compressed batch of {packed.size} bytes becomes more than {self._limit} "
                "bytes, which is the limit. If a producer may have written it, raise maxDecompressedBatchBytes, for "
                f"example to {4 * self._limit}; otherwise it was damaged"
            ) from None
        except (cramjam.DecompressionError, zstandard.ZstdError) as problem:
            raise CorruptDataError(
                f"{place(split, offset)}: a compressed batch that cannot be decompressed ({problem}); "
                "the producer wrote it that way"
            ) from problem
        start = self.used
        self.used += size
        return start, self.used

    def _room(self, size: int) -> Bytes:
        """Return the free rest, at least ``size`` bytes of it."""
        if size > self._limit:
            raise _TooLargeError
        if self.memory.size - self.used < size:
            grown = np.empty(max(self.used + size, min(2 * self.memory.size, self.used + self._limit)), np.uint8)
            grown[: self.memory.size] = self.memory
            self.memory = grown
        return self.memory[self.used : self.used + self._limit]

    def _zstd_into(self, packed: Bytes, room: Bytes) -> int:
        # One decoder for all batches: making one takes as long as decompressing 16 KiB.
        reader = self._zstd_context.stream_reader(packed.data, read_across_frames=True)
        size = reader.readinto(room.data)
        if reader.read(1):
            raise _RoomUsedUpError
        return size

    def _stream(self, decompress_into: Callable[[Any, Any], int], packed: Bytes) -> int:
        """Try with more and more room: codecs do not say beforehand how much they need, or are not to be believed."""
        wanted = min(self._limit, max(_SMALLEST_GUESS, _FIRST_GUESS * packed.size))
        while True:
            room = self._room(wanted)
            try:
                return decompress_into(packed, room)
            except _RoomUsedUpError:
                pass
            except cramjam.DecompressionError as problem:
                if "whole buffer" not in str(problem):
                    raise
            if room.size >= self._limit:
                raise _TooLargeError
            wanted = min(self._limit, 2 * room.size)

    def _snappy(self, packed: Bytes) -> int:
        if packed[: len(_XERIAL_MAGIC)].tobytes() != _XERIAL_MAGIC:
            return self._snappy_block(packed, 0)
        total = at = 0
        while at < packed.size:
            if packed[at : at + len(_XERIAL_MAGIC)].tobytes() == _XERIAL_MAGIC:
                at += _XERIAL_HEADER
                continue
            size = int.from_bytes(packed[at : at + 4].tobytes(), "big")
            at += 4
            if size > packed.size - at:
                raise cramjam.DecompressionError("snappy: a block longer than the batch")
            total += self._snappy_block(packed[at : at + size], total)
            at += size
        return total

    def _snappy_block(self, block: Bytes, before: int) -> int:
        size: int = cramjam.snappy.decompress_raw_len(block.data)
        room = self._room(before + size)[before : before + size]
        return int(cramjam.snappy.decompress_raw_into(block.data, room.data)) if size else 0
