"""Records what the unit tests decode, from real servers: ``python -m tests.unit.mysql.record`` fills ``recorded/``.

With names it records those alone.

Each file is a binlog as it lies on the server's disk, after its four bytes of magic.
"""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path

from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.client.login_settings import LoginSettings
from pyspark_mysql_cdc_wm.lookup.collations import collations_of
from services.mysql_client import connect
from services.mysql_local import LocalMySql
from services.mysql_program import Flavour

FOLDER = Path(__file__).with_name("recorded")
_TABLE = (
    "CREATE TABLE orders (id INT UNSIGNED PRIMARY KEY, customer VARCHAR(300) CHARACTER SET latin1 NOT NULL,"
    " amount DECIMAL(12,2), born YEAR, small SMALLINT, at DATETIME(3), state ENUM('new', 'paid'),"
    " tags SET('a', 'b', 'c'), flag BIT(1), raw BINARY(4), note TEXT CHARACTER SET utf8mb4, KEY (customer(10)))"
)
_ROWS = (
    "INSERT INTO orders VALUES (1, 'Ann', 10.50, 1999, -3, '2024-05-07 12:30:15.123', 'new', 'a,c', 1, 'ab', 'é漢😀'),"
    " (4000000000, 'Zoë', -0.05, 0, 7, NULL, 'paid', '', 0, x'00FF00FF', NULL)"
)
_HISTORY = (
    "CREATE DATABASE shop CHARACTER SET utf8mb4",
    "USE shop",
    _TABLE,
    _ROWS,
    "UPDATE orders SET amount = amount + 1, note = 'changed' WHERE id = 1",
    "DELETE FROM orders WHERE id = 4000000000",
)
_KEYS = "CREATE TABLE shop.keys_of_two (a VARCHAR(20), b INT, c TEXT, PRIMARY KEY (b, c(5)))"
_INVISIBLE = "CREATE TABLE shop.hidden (id INT PRIMARY KEY, h INT INVISIBLE DEFAULT 5)"
_MYSQL = {
    "full": (*_HISTORY, _KEYS, "INSERT INTO shop.keys_of_two VALUES ('x', 1, 'long')", _INVISIBLE,
             "INSERT INTO shop.hidden VALUES (1)"),
    "minimal": ("SET GLOBAL binlog_row_metadata = MINIMAL", *_HISTORY),
    "no_checksum": ("SET GLOBAL binlog_checksum = NONE", *_HISTORY),
    "compressed": ("SET SESSION binlog_transaction_compression = ON", *_HISTORY),
    "partial_json": (
        "CREATE DATABASE shop",
        "CREATE TABLE shop.carts (id INT PRIMARY KEY, cart JSON, note JSON)",
        "INSERT INTO shop.carts VALUES (1, JSON_OBJECT('items', JSON_ARRAY('tea', 2.5), 'who', REPEAT('x', 80)), NULL)",
        "SET SESSION binlog_row_value_options = PARTIAL_JSON",
        """UPDATE shop.carts SET note = '[]',
            cart = JSON_SET(cart, '$.items[last]', 3, '$.items[7]', JSON_OBJECT('a', 1), '$.at', 'home')""",
    ),
    "tagged": ("SET SESSION gtid_next = 'AUTOMATIC:tag'", *_HISTORY),
}  # fmt: skip
_MARIADB = {
    "mariadb": _HISTORY,
    "mariadb_compressed": (
        "SET GLOBAL log_bin_compress = ON", "SET GLOBAL log_bin_compress_min_len = 10", *_HISTORY,
    ),
}  # fmt: skip


def record(name: str, flavour: Flavour, *statements: str) -> None:
    """Run statements on a new server and keep its binlog."""
    with closing(LocalMySql(flavour=flavour)) as server:
        server.start()
        with connect(server.host, server.port) as connection, connection.cursor() as cursor:
            cursor.execute("SET timestamp = 1715085015.123456")
            for statement in statements:
                cursor.execute(statement)
            cursor.execute("SHOW BINARY LOGS")
            file = cursor.fetchall()[-1][0]
            cursor.execute("SELECT @@datadir")
            ((folder,),) = cursor.fetchall()
        with closing(MySqlConnection(LoginSettings(server.host, server.port, "root", ""))) as connection:
            charsets = dict(collations_of(connection).charsets)
        # While it is written to, a file is marked as such, which its checksum does not know.
        server.stop()
        (FOLDER / f"{name}.binlog").write_bytes(Path(folder, file).read_bytes()[4:])
        (FOLDER / f"charsets-{flavour.name.lower()}.json").write_text(json.dumps(charsets) + "\n", encoding="utf-8")
    sys.stderr.write(f"recorded {name}\n")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:] or (*_MYSQL, *_MARIADB):
        if name in _MARIADB:
            record(name, Flavour.MARIADB, *_MARIADB[name])
        else:
            record(name, Flavour.MYSQL, *_MYSQL[name])
