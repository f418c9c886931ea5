"""Look-ups of a server's settings, tables and binlog.

Imports ``binlog``, ``client``, ``options``, ``records``.
"""
