"""The content of tables as of a position of the binlog.

Imports ``client``, ``lookup``, ``options``, ``records``.
"""
