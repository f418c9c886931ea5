"""The content of tables as of a position of the binlog.

The life of a chunk, a range of a table's keys that one batch reads:

1. The driver cuts it: ``chunk_bounds`` asks the server for the key at which it ends, and the plan puts that key and the
   position of the binlog into the offset (``planning/snapshot_ranges.py``). So a replay has the same chunk.
2. A task receives the batch's chunks and their position (``reading/range_reader.py``).
3. It holds the tables: ``consistent_view`` opens one view of all of them, so that no statement alters them meanwhile.
   The view is later than the position.
4. It undoes what the binlog has from the position on: keys that were changed since are delivered as they were at the
   position (``rows_as_of``). What a SELECT sees of them does not matter, so the rows are the same on every replay.
5. It selects all other rows of the chunk, and delivers them as the server sends them: ``ConsistentView.rows`` sends the
   SELECT, and that for the rest after one that was killed; ``reading/snapshot_rows.py`` leaves out the changed keys.

Imports ``client``, ``lookup``, ``options``, ``records``.
"""
