"""``verify_certified`` and ``verify --mysql --certificate``: whether a copy equals what a certificate states.

It asks no server, and imports nothing that reads one: what the reader has wrong is not repeated here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from pyspark.sql import DataFrame

from pyspark_mysql_cdc_wm.verifying.certificate import Certificate
from pyspark_mysql_cdc_wm.verifying.comparison import fingerprints_of
from pyspark_mysql_cdc_wm.verifying.named_copy import loading
from pyspark_mysql_cdc_wm.verifying.row_text import Fingerprint
from pyspark_mysql_cdc_wm.verifying.verdict import Verdict
from watermark_source.errors import UsageError

__all__ = ["verify", "verify_certified"]


def verify_certified(copy: DataFrame, certificate: str | Path) -> Verdict:
    """Compare a copy of a table with a certificate of it, without the server.

    Args:
        copy: one row for each row that the table had, as after the batch that the certificate is as of.
        certificate: the file that ``certify`` has written.

    Returns:
        The ranges that differ are in ``unexamined``: a certificate has no single rows.

    Raises:
        UsageError: the copy lacks a column, or the file cannot be read.
        CorruptDataError, UnsupportedFormatError: the file is damaged or not a certificate, or of another version.
    """
    try:
        text = Path(certificate).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{certificate} cannot be read: {error}") from None
    stated = Certificate.of(text, str(certificate))
    found = fingerprints_of(stated.table.fingerprints(copy, stated.pieces))
    expected = enumerate(stated.fingerprints)
    wrong = tuple(stated.pieces.name(piece) for piece, each in expected if found.get(piece, Fingerprint()) != each)
    was = f"{stated.table.name} as of {stated.as_of}"
    summary = (
        f"rejected: the copy differs from {was} in {len(wrong)} of {stated.pieces.count} ranges"
        if wrong
        else f"accepted: the copy has the {stated.rows} rows of {was}"
    )
    return Verdict(accepted=not wrong, differences=(), unexamined=wrong, summary=summary)


def verify(copy: str, certificate: str, out: TextIO) -> bool:
    """Verify a copy named as FORMAT:PATH or table:NAME, print what differs and the summary; return whether it equals.

    Raises as ``verify_certified``.
    """
    with loading(copy) as load:
        return verify_certified(load(), certificate).report(out)
