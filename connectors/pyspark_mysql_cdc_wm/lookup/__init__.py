"""A server's settings, tables, binlog.

Imports ``binlog``, ``client``, ``options``, ``records``.
"""
