"""Row events to columns, compiled: transactions, tables, values of every type.

Imports ``binlog``.
"""
