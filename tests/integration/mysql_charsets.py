"""What a server makes of the characters of its character sets, but for those whose bytes are Unicode.

``python -m tests.integration.mysql_charsets`` writes the connector's tables of them anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

from pyspark_mysql_cdc_wm.records import character_sets
from services.mysql import MySql, mysql_service
from services.mysql_client import run

_FOLDER = Path(character_sets.__file__).parent
_NOT_TRANSLATED = ("ascii", "binary", "utf8", "utf8mb3")
_A_QUESTION = 2_000


def single_byte_charsets(server: MySql) -> dict[str, str]:
    """By name the 256 characters of each; a byte without a character is what the server shows for it."""
    names = run(
        server.host,
        server.port,
        "SELECT CHARACTER_SET_NAME FROM information_schema.CHARACTER_SETS WHERE MAXLEN = 1 ORDER BY 1",
    )
    found = {}
    for (name,) in names:
        if name not in _NOT_TRANSLATED:
            asked = ", ".join(f"HEX(CONVERT(_{name} x'{byte:02X}' USING utf8mb4))" for byte in range(256))
            (shown,) = run(server.host, server.port, f"SELECT {asked}")
            found[str(name)] = "".join(bytes.fromhex(str(each)).decode() for each in shown)
    return found


def multi_byte_charsets(server: MySql) -> Iterator[tuple[str, dict[bytes, str | None]]]:
    """Yield the name of each that is read by tables, and by its bytes what the server shows for each character.

    ``None`` for bytes that are none.
    """
    names = run(server.host, server.port, "SELECT CHARACTER_SET_NAME FROM information_schema.CHARACTER_SETS")
    for name in sorted(character_sets.FORMS.keys() & {str(each) for (each,) in names}):
        found: dict[bytes, str | None] = {}
        codes = iter(character_sets.codes(name))
        while some := list(islice(codes, _A_QUESTION)):
            asked = (f"HEX(CONVERT(CONVERT(x'{code.hex()}' USING {name}) USING utf8mb4))" for code in some)
            (shown,) = run(server.host, server.port, f"SELECT {', '.join(asked)}")
            for code, each in zip(some, shown, strict=True):
                found[code] = None if each is None else bytes.fromhex(str(each)).decode()
        yield name, found


def _differences(shown: Mapping[bytes, str | None], charset: str) -> Iterator[tuple[str, str | None]]:
    tables = character_sets.codec_tables(charset)
    for code, character in shown.items():
        point = character_sets.NO_CHARACTER if character is None else ord(character)
        if character_sets.point_of(tables, code) != point:
            yield code.hex(), character


if __name__ == "__main__":
    with mysql_service() as server:
        singles = single_byte_charsets(server)
        differences = {name: dict(_differences(shown, name)) for name, shown in multi_byte_charsets(server)}
    for name, content in (("single_byte", singles), ("multi_byte", differences)):
        (_FOLDER / f"{name}.json").write_text(json.dumps(content, indent=0) + "\n", encoding="utf-8")
