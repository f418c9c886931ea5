"""What a server makes of the characters of its character sets, except for those whose bytes are Unicode.

``python -m tests.integration.mysql_charsets`` writes the connector's tables of them again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from pyspark_mysql_cdc_wm.binlog import character_sets
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


class Shown(NamedTuple):
    """What the server makes of the bytes of a character."""

    text: str | None
    """``None`` for bytes that are none."""
    is_first: bool
    """Whether it makes the same bytes of the text."""


def multi_byte_charsets(server: MySql) -> Iterator[tuple[str, dict[bytes, Shown]]]:
    """Yield the name of each that is read by tables, and what the server makes of its characters, by their bytes."""
    names = run(server.host, server.port, "SELECT CHARACTER_SET_NAME FROM information_schema.CHARACTER_SETS")
    for name in sorted(character_sets.FORMS.keys() & {str(each) for (each,) in names}):
        yield name, shown_by(server, name, character_sets.codes(name))


def shown_by(server: MySql, name: str, codes: Iterable[bytes]) -> dict[bytes, Shown]:
    """Return what the server makes of the characters of a character set, by their bytes."""
    found, left = dict[bytes, Shown](), iter(codes)
    while some := list(islice(left, _A_QUESTION)):
        texts = [f"CONVERT(CONVERT(x'{code.hex()}' USING {name}) USING utf8mb4)" for code in some]
        asked = (f"HEX({text}), HEX(CONVERT({text} USING {name}))" for text in texts)
        (answer,) = run(server.host, server.port, f"SELECT {', '.join(asked)}")
        for code, each, back in zip(some, answer[::2], answer[1::2], strict=True):
            text = None if each is None else bytes.fromhex(str(each)).decode()
            found[code] = Shown(text, back == code.hex().upper())
    return found


def _differences(shown: Mapping[bytes, Shown], charset: str) -> Iterator[tuple[str, str | None]]:
    tables = character_sets.codec_tables(charset)
    for code, (character, _) in shown.items():
        point = character_sets.NO_CHARACTER if character is None else ord(character)
        if character_sets.point_of(tables, code) != point:
            yield code.hex(), character


if __name__ == "__main__":
    with mysql_service() as server:
        singles = single_byte_charsets(server)
        shown = dict(multi_byte_charsets(server))
        every = [bytes((byte,)) for byte in range(256)]
        shown_singly = {name: shown_by(server, name, every) for name in singles}
    differences = {name: dict(_differences(characters, name)) for name, characters in shown.items()}
    second_codes = {
        name: [code.hex() for code, (text, is_first) in characters.items() if not is_first and text not in {None, "?"}]
        for name, characters in (shown | shown_singly).items()
    }
    second_codes = {name: codes for name, codes in second_codes.items() if codes}
    tables = (("single_byte", singles), ("multi_byte", differences), ("second_codes", second_codes))
    for name, content in tables:
        (_FOLDER / f"{name}.json").write_text(json.dumps(content, indent=0) + "\n", encoding="utf-8")
