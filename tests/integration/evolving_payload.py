"""Values of two schemas of a registry, read while the second one appears, and once more by each batch that died."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.integration.direct_kafka import DirectKafka, Options

Value = tuple[bytes, dict[str, object]]
"""A value and the row that it is decoded to."""


def check_both_schemas(
    direct: DirectKafka,
    source: Options,
    send: Callable[[Sequence[bytes]], None],
    first: Callable[[int], Value],
    later: Callable[[int], Value],
    register: Callable[[], None],
    *,
    columns: Sequence[str] = ("payload",),
    key: tuple[object, ...] = (),
) -> None:
    """Check what a query decodes, which reads at most 150 rows a batch of partition 0; one value in a hundred is bad.

    ``register`` adds the schema of ``later`` to the registry. ``key`` is what ``columns`` hold before the payload.
    """
    expected: list[dict[str, object]] = []

    def write(values: Sequence[Value]) -> None:
        bad = [place % 100 == 50 for place in range(len(values))]
        send([value[:-1] if is_bad else value for is_bad, (value, _) in zip(bad, values, strict=True)])
        expected.extend(dict.fromkeys(row) if is_bad else row for is_bad, (_, row) in zip(bad, values, strict=True))

    query = direct.start(source, "q")
    write([first(n) for n in range(1, 301)])
    query.run_until(lambda: len(direct.data("q")) == 300)
    register()
    write([each for n in range(1, 301) for each in (first(n), later(n))])
    # What the last batch has read is counted when its report has come.
    query.run_until(lambda: len(direct.data("q")) == query.status.rows.read == 900)
    assert query.status.rows.malformed == 9
    query.stop()
    for dead in (None, direct.last_with_rows("q"), 1):
        if dead is not None:
            direct.die_in("q", dead)
            direct.run(source, "q")
        assert direct.data("q", columns) == [(*key, row) for row in expected]
