"""What a server makes of each byte in its character sets of one byte a character.

``python -m tests.integration.mysql_charsets`` writes the connector's table of them anew.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyspark_mysql_cdc_wm
from services.mysql import MySql, mysql_service
from services.mysql_client import run

_TABLE = Path(pyspark_mysql_cdc_wm.__file__).with_name("single_byte.json")
_NOT_TRANSLATED = ("ascii", "binary", "utf8", "utf8mb3")


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


if __name__ == "__main__":
    with mysql_service() as server:
        _TABLE.write_text(json.dumps(single_byte_charsets(server), indent=0) + "\n", encoding="utf-8")
