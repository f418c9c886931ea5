"""Makes the seeds of ``mysql_binlog`` and ``mysql_places``: ``python -m tests.soak.fuzz.mysql_seeds``.

Those of ``mysql_binlog`` are the recorded binlogs of real servers.
"""

from __future__ import annotations

from tests.soak.fuzz.mysql_binlog import CHECKED, FIRST_COLUMN, HEAD, PACKED, SEALED
from tests.soak.fuzz.targets import SEEDS
from tests.unit.mysql.record import FOLDER

_ROWS = 20


def main() -> None:
    """Write the seeds: each binlog as it is, sealed, and as one compressed transaction."""
    folder = SEEDS / "mysql_binlog"
    folder.mkdir(parents=True, exist_ok=True)
    for file in sorted(FOLDER.glob("*.binlog")):
        checked = 0 if file.stem == "no_checksum" else CHECKED
        for name, flags in (("", 0), ("-sealed", SEALED | FIRST_COLUMN), ("-packed", SEALED | PACKED)):
            content = HEAD.pack(checked | flags, _ROWS, 0, 0) + file.read_bytes()
            (folder / f"{file.stem}{name}").write_bytes(content)
    folder = SEEDS / "mysql_places"
    folder.mkdir(parents=True, exist_ok=True)
    for kind, name in enumerate(("set", "start", "offset", "key")):
        for number in range(3):
            (folder / f"{name}-{number}").write_bytes(bytes([kind, number, 3, 1, 9, 1, 5 + number, 1, 6]))


if __name__ == "__main__":
    main()
