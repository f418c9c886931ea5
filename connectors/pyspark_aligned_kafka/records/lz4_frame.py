"""LZ4 frames as producers write them, taken block by block: five times as fast as with a decoder for every frame.

A frame (LZ4 frame format 1.6): magic 4, flags 1, block descriptor 1, header checksum 1, then blocks of a length of 4,
the bytes and, if the flags say so, a checksum of 4; a length of 0 ends it. Little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

import cramjam

from pyspark_aligned_kafka.records.batches import Bytes

_HEADER = struct.Struct("<IBBB")
_LENGTH = struct.Struct("<I")
_MAGIC = 0x184D2204
# Version 1, blocks that do not refer to each other, neither a content size nor a dictionary. Checksums are of no
# interest: the whole batch is under one of its own.
_LOOKED_AT, _USUAL = 0b11101011, 0b01100000
_CHECKSUM_FLAG, _CHECKSUM_SIZE = 0b00010000, 4
_STORED = 1 << 31
_BLOCK_SIZES: Final = {0x40: 1 << 16, 0x50: 1 << 18, 0x60: 1 << 20, 0x70: 1 << 22}


class Block(NamedTuple):
    """One block's bytes, ``stored`` as they are if they would not compress."""

    data: memoryview
    stored: bool


def longest_block(packed: Bytes) -> int | None:
    """Return the most bytes a block of the frame becomes; ``None`` if it is not of the usual kind."""
    if packed.size < _HEADER.size:
        return None
    magic, flags, descriptor, _ = _HEADER.unpack_from(packed.data)
    return _BLOCK_SIZES.get(descriptor) if magic == _MAGIC and flags & _LOOKED_AT == _USUAL else None


def blocks(packed: Bytes) -> Iterator[Block]:
    """Yield the blocks of a frame of the usual kind.

    Raises:
        cramjam.DecompressionError: the frame does not end.
    """
    data = packed.data
    after = _CHECKSUM_SIZE if data[4] & _CHECKSUM_FLAG else 0
    at = _HEADER.size
    while at + _LENGTH.size <= len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        if length == 0:
            return
        start, size = at + _LENGTH.size, length & ~_STORED
        at = start + size + after
        if at > len(data):
            break
        yield Block(data[start : start + size], stored=bool(length & _STORED))
    raise cramjam.DecompressionError("lz4: a frame that does not end")


def decompress(block: Block, room: Bytes) -> int:
    """Decompress a block into memory, as long as the longest block, and return how much of it was needed.

    Raises:
        cramjam.DecompressionError: it is not what the codec makes, or becomes longer.
    """
    if not block.stored:
        return int(cramjam.lz4.decompress_block_into(block.data, room.data, output_len=room.size))
    size = len(block.data)
    if size > room.size:
        raise cramjam.DecompressionError("lz4: a block longer than its frame allows")
    room.data[:size] = block.data
    return size
