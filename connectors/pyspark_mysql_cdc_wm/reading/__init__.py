"""Reading of ranges on executors.

``range_reader.py`` is what a task calls; ``binlog_rows.py`` reads a range of the binlog, ``snapshot_rows.py`` chunks of
tables. Both have a ``StreamToRead``, decide by ``delivered_tables.py`` which changes are delivered, and refuse by
``schema_changes.py`` what the stream cannot follow.

Imports ``binlog``, ``client``, ``lookup``, ``options``, ``records``, ``snapshot``.
"""
