"""``pytest -p tests.both_forms …``: each compiled function runs as numba's code and as built code, and both must agree.

``python -m tests.both_forms 10000000`` decodes as many rows by chance so. They get the same arguments, and are compared
by what they return and by every byte of every array that they may write to. Built code must be there: ``make
decoders``.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import numpy as np
import pytest

from pyspark_aligned_kafka.options.kafka_options import parse
from pyspark_aligned_kafka.records.decoding import RecordDecoder
from pyspark_aligned_kafka.records.record_batches import survey
from services.kafka_record_batch import CODECS, encode_batch
from watermark_source.machine_code import built_library, compiler
from watermark_source.machine_code.native import CompiledFunction
from watermark_source.planning.split import Split, SplitRange

_calls: Counter[str] = Counter()


def pytest_configure() -> None:
    CompiledFunction.make = _make_both  # type: ignore[assignment, method-assign]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(f"both forms of {len(_calls)} functions agreed in {_calls.total()} calls")


def _make_both(function: CompiledFunction) -> None:
    of, signature = function.function, function.signature
    built = built_library.function(of, signature)
    assert built is not None, f"{of.__module__} has no machine code of these sources: make decoders"
    function._run = agreeing(compiler.made(of, signature), built, built_library.symbol(of))


def agreeing(one: Any, other: Any, name: str) -> Any:
    """Return a function that runs both, one after the other in the caller's memory, and compares them.

    In the same memory, for a place in another array is kept as the distance to it.
    """

    def run(*arguments: Any) -> Any:
        _calls[name] += 1
        outputs = [each for each in arguments if isinstance(each, np.ndarray) and each.flags.writeable]
        before = [each.copy() for each in outputs]
        expected = one(*arguments)
        after = [each.copy() for each in outputs]
        for each, copy in zip(outputs, before, strict=True):
            each[...] = copy
        found = other(*arguments)
        assert found == expected, f"{name}: {found} in place of {expected}"
        for number, (each, copy) in enumerate(zip(outputs, after, strict=True)):
            assert each.tobytes() == copy.tobytes(), f"{name}: array {number} of those it may write to differs"
        return found

    return run


_SCHEMA = "id STRING, at STRING, amount DOUBLE, count BIGINT, nested STRUCT<a: INT, b: ARRAY<STRING>>"
_BATCH = 20_000


def decode_by_chance(rows: int) -> int:
    """Decode batches of JSON by chance, in each codec, by both forms; return how many rows they had."""
    options = parse({
        "kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders", "valueFormat": "json",
        "valueSchema": _SCHEMA, "eventTimeColumn": "value:$.at or timestamp", "eventTimeErrors": "timestamp",
    })  # fmt: skip
    chance, split, codecs, decoded = np.random.default_rng(rows), Split("orders", 0), list(CODECS), 0
    while decoded < rows:
        numbers = chance.integers(-(2**40), 2**40, _BATCH)
        texts = [
            b'{"id": "%d", "at": "20%02d-0%d-1%dT00:00:0%dZ", "amount": %d.%de%d, "count": %d, "nested": {"a": %d, '
            b'"b": ["\\u00e9", "x%d"]}}' % (n, n % 99, 1 + n % 9, n % 10, n % 9, n, n % 77, n % 30, n, n % 1_000, n)
            for n in numbers.tolist()
        ]  # fmt: skip
        width = max(map(len, texts))
        values = np.frombuffer(b"".join(text.ljust(width) for text in texts), np.uint8).reshape(_BATCH, width).copy()
        # Some documents are cut or have another byte.
        hit = chance.integers(0, _BATCH, 400)
        values[hit, chance.integers(0, width, 400)] = chance.integers(0, 256, 400)
        times = 1_700_000_000_000 + chance.integers(0, 10**9, _BATCH)
        data = bytearray(encode_batch(times, values, codec=codecs[decoded // _BATCH % len(codecs)]))
        array = np.frombuffer(data, np.uint8)
        decoder = RecordDecoder(
            options.columns, batch_rows=_BATCH, batch_bytes=1 << 26, decompressed_limit=1 << 26,
            event_time=options.event_time, payloads=options.payloads,
        )  # fmt: skip
        batches = survey(split, array, 0, len(array)).batches
        decoded += sum(each.rows for each in decoder.decode(SplitRange(split, 0, _BATCH), array, 0, batches, None))
    return decoded


if __name__ == "__main__":
    pytest_configure()
    done = decode_by_chance(int(sys.argv[1]))
    sys.stdout.write(f"{done} rows\n")
