"""Compressed batches: every codec, mixed with plain ones, and what hostile ones cannot do."""

from __future__ import annotations

import contextlib
import gzip
import struct
import tracemalloc
from collections.abc import Callable

import cramjam
import lz4.frame
import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from pyspark_aligned_kafka.records.compression import Arena
from pyspark_aligned_kafka.records.decoding import RecordDecoder
from pyspark_aligned_kafka.records.record_batches import survey
from tests.unit.kafka.batches import LOG_APPEND_TIME, Rec, batch, records_bytes
from watermark_source.errors import CorruptDataError, SourceError, UnsupportedFormatError
from watermark_source.planning.split import Split, SplitRange

SPLIT = Split("orders", 3)
LIMIT = 1 << 20


def xerial(data: bytes, block: int = 1000) -> bytes:
    """The framing of snappy-java."""
    parts = [data[i : i + block] for i in range(0, len(data), block)]
    packed = [bytes(cramjam.snappy.compress_raw(part)) for part in parts]
    header = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    return header + b"".join(struct.pack(">i", len(part)) + part for part in packed)


def lz4_of_a_producer(data: bytes, **features: bool) -> bytes:
    """Blocks that do not refer to each other, no content size, with or without checksums."""
    return bytes(lz4.frame.compress(data, block_linked=False, store_size=False, **features))


def zstd_of_a_stream(data: bytes) -> bytes:
    """One frame, without a content size, as a Java producer makes it."""
    stream = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    return stream.compress(data) + stream.flush()


CODECS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "gzip": (1, gzip.compress),
    "snappy-raw": (2, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    "snappy-xerial": (2, xerial),
    "lz4": (3, lz4_of_a_producer),
    "lz4-checksums": (3, lambda data: lz4_of_a_producer(data, content_checksum=True, block_checksum=True)),
    "lz4-linked": (3, lambda data: bytes(cramjam.lz4.compress(data))),
    "lz4-sized": (3, lambda data: bytes(lz4.frame.compress(data, block_linked=False, store_size=True))),
    "zstd": (4, zstd_of_a_stream),
    "zstd-sized": (4, lambda data: bytes(cramjam.zstd.compress(data))),
    "snappy-xerial-twice": (2, lambda data: xerial(data[:40]) + xerial(data[40:])),
    "gzip-two-members": (1, lambda data: gzip.compress(data[:40]) + gzip.compress(data[40:])),
    "lz4-two-frames": (3, lambda data: lz4_of_a_producer(data[:40]) + lz4_of_a_producer(data[40:])),
    "zstd-two-frames": (4, lambda data: zstd_of_a_stream(data[:40]) + zstd_of_a_stream(data[40:])),
}


def compressed(name: str, base: int, recs: list[Rec], attributes: int = 0) -> bytes:
    codec, pack = CODECS[name]
    payload = pack(records_bytes(recs))
    return batch(
        base,
        [],
        payload=payload,
        count=len(recs),
        last_delta=len(recs) - 1,
        attributes=codec | attributes,
        max_time=5,
    )


def decode(data: bytes, limit: int = LIMIT) -> list[tuple[int, bytes]]:
    array = np.frombuffer(bytearray(data), np.uint8)
    decoder = RecordDecoder(("offset", "value"), batch_rows=100, batch_bytes=1 << 24, decompressed_limit=limit)
    found = survey(SPLIT, array, 0, array.size)
    made = list(decoder.decode(SplitRange(SPLIT, 0, 1 << 40), array, 0, found.batches, None))
    return [row for each in made for row in zip(*(column.to_pylist() for column in each.columns), strict=True)]


def recs(count: int, size: int = 50) -> list[Rec]:
    return [Rec(i, b"%d " % i * size) for i in range(count)]


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("count", [1, 40, 3000])
def test_every_codec_gives_back_what_was_written(name: str, count: int) -> None:
    assert decode(compressed(name, 7, recs(count))) == [(7 + rec.delta, rec.value) for rec in recs(count)]


def test_codecs_plain_batches_and_kinds_of_timestamps_mix_in_offset_order() -> None:
    data, expected = b"", []
    for i, name in enumerate([*CODECS, *CODECS]):
        some = recs(3)
        data += compressed(name, 10 * i, some, LOG_APPEND_TIME if i % 3 else 0) + batch(10 * i + 5, some)
        expected += [(10 * i + shift + rec.delta, rec.value) for shift in (0, 5) for rec in some]
    assert decode(data) == expected


def test_however_much_a_fetch_becomes_some_megabytes_of_it_are_unpacked_at_once() -> None:
    data = b"".join(compressed("zstd", i, [Rec(0, bytes([i]) * 900_000)]) for i in range(40))
    array = np.frombuffer(bytearray(data), np.uint8)
    decoder = RecordDecoder(("offset",), batch_rows=100, batch_bytes=1 << 26, decompressed_limit=LIMIT)
    found = survey(SPLIT, array, 0, array.size)
    tracemalloc.start()
    try:
        made = list(decoder.decode(SplitRange(SPLIT, 0, 1 << 40), array, 0, found.batches, None))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [offset for each in made for offset in each.columns[0].to_pylist()] == list(range(40))
    # Two of the arena: it is copied where it grows.
    assert most < 12 << 20


def test_small_batches_are_decoded_together_also_after_one_that_was_damaged() -> None:
    decoder = RecordDecoder(("offset",), batch_rows=100, batch_bytes=1 << 24, decompressed_limit=LIMIT)

    def decoded(data: bytes) -> list[list[int]]:
        array = np.frombuffer(bytearray(data), np.uint8)
        found = survey(SPLIT, array, 0, array.size)
        made = decoder.decode(SplitRange(SPLIT, 0, 1 << 40), array, 0, found.batches, None)
        return [each.columns[0].to_pylist() for each in made]

    small = b"".join(compressed("gzip", i, recs(1)) for i in range(80))
    large = b"".join(compressed("gzip", i, [Rec(0, bytes(1_047_000))]) for i in range(4))
    damaged = batch(4, [], payload=b"no codec wrote this", count=1, last_delta=0, attributes=1)
    assert decoded(small) == [list(range(80))]
    with pytest.raises(CorruptDataError):
        decoded(large + damaged)
    assert decoded(small) == [list(range(80))]


@pytest.mark.parametrize("name", CODECS)
def test_a_batch_that_becomes_too_large_is_an_error_and_takes_no_more_memory_than_the_limit(name: str) -> None:
    codec, pack = CODECS[name]
    bomb = np.frombuffer(bytearray(pack(bytes(50 << 20))), np.uint8)
    arena = Arena(LIMIT)
    with pytest.raises(
        CorruptDataError,
        match=r"topic orders partition 3 offset 9: .*more than 1048576 bytes.*raise maxDecompressedBatchBytes",
    ):
        arena.add(SPLIT, 9, codec, bomb)
    assert arena.memory.size <= 2 * LIMIT


@pytest.mark.parametrize("name", CODECS)
def test_memory_grows_with_what_is_in_it_and_not_to_the_limit(name: str) -> None:
    codec, pack = CODECS[name]
    arena, data = Arena(1 << 30), bytes(700_000)
    packed = np.frombuffer(bytearray(pack(data)), np.uint8)
    for _ in range(3):
        start, stop = arena.add(SPLIT, 9, codec, packed)
        assert arena.memory[start:stop].tobytes() == data
    assert arena.memory.size <= 8 << 20


def test_room_is_four_times_what_came_or_64_kib_and_memory_doubles_up_to_the_limit() -> None:
    arena, limit = Arena(1 << 20), 1 << 20
    noise = np.random.default_rng(1).bytes(100_000)
    assert (arena.memory.size, arena.used) == (0, 0)

    def added(data: bytes) -> tuple[tuple[int, int], int]:
        return arena.add(SPLIT, 0, 1, np.frombuffer(gzip.compress(data), np.uint8)), arena.memory.size

    assert added(bytes(1_000)) == ((0, 1_000), 65_536)
    # There is less free than another first guess.
    assert added(bytes(1_000)) == ((1_000, 2_000), 131_072)
    arena.clear()
    assert added(noise) == ((0, 100_000), 4 * len(gzip.compress(noise)))
    arena.clear()
    # More than was there: twice as much is tried, and no more than the limit is ever had.
    assert added(bytes(500_000)) == ((0, 500_000), 2 * 4 * len(gzip.compress(noise)))
    assert added(bytes(900_000)) == ((500_000, 1_400_000), 500_000 + limit)


def test_blocks_of_snappy_may_be_empty_and_must_lie_within_the_batch() -> None:
    arena, empty = Arena(LIMIT), struct.pack(">i", 1) + bytes(cramjam.snappy.compress_raw(b""))
    blocks = xerial(b"one") + empty + xerial(b"two")[16:]
    start, stop = arena.add(SPLIT, 9, 2, np.frombuffer(bytearray(blocks), np.uint8))
    assert arena.memory[start:stop].tobytes() == b"onetwo"
    longer = xerial(b"one") + struct.pack(">i", 9) + bytes(8)
    with pytest.raises(CorruptDataError, match="a block longer than the batch"):
        arena.add(SPLIT, 9, 2, np.frombuffer(bytearray(longer), np.uint8))


@pytest.mark.parametrize("name", ["gzip", "lz4", "zstd"])
def test_bytes_that_no_codec_wrote_are_refused_at_once(name: str) -> None:
    codec, _ = CODECS[name]
    arena = Arena(1 << 30)
    with pytest.raises(CorruptDataError, match=r"offset 9: a compressed batch that cannot be decompressed \("):
        arena.add(SPLIT, 9, codec, np.frombuffer(bytearray(b"no codec wrote this"), np.uint8))
    assert arena.memory.size <= 1 << 20


@pytest.mark.parametrize("name", CODECS)
def test_a_batch_of_just_the_limit_is_read(name: str) -> None:
    codec, pack = CODECS[name]
    arena = Arena(LIMIT)
    data = np.random.default_rng(1).integers(0, 256, LIMIT, np.uint8).tobytes()
    start, stop = arena.add(SPLIT, 9, codec, np.frombuffer(bytearray(pack(data)), np.uint8))
    assert arena.memory[start:stop].tobytes() == data


@pytest.mark.parametrize("name", CODECS)
@given(cut=st.integers(1, 200), noise=st.binary(min_size=1, max_size=3), at=st.integers(0, 300))
def test_damaged_payloads_raise_declared_errors_only(name: str, cut: int, noise: bytes, at: int) -> None:
    codec, pack = CODECS[name]
    payload = bytearray(pack(records_bytes(recs(20))))
    at %= len(payload)
    payload[at : at + len(noise)] = noise
    for damaged in (bytes(payload), bytes(payload[:-cut])):
        with contextlib.suppress(SourceError):
            decode(batch(0, [], payload=damaged, count=20, last_delta=19, attributes=codec))


@pytest.mark.parametrize("name", CODECS)
def test_a_payload_that_is_cut_off_is_named_with_its_place(name: str) -> None:
    codec, pack = CODECS[name]
    payload = pack(records_bytes(recs(20)))[:-7]
    with pytest.raises(CorruptDataError, match="topic orders partition 3 offset 4: "):
        decode(batch(4, [], payload=payload, count=20, last_delta=19, attributes=codec))


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(UnsupportedFormatError, match="offset 4: compression codec 5; known are 1 gzip"):
        decode(batch(4, [], payload=b"??", count=1, attributes=5))
