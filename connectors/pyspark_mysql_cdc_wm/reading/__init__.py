"""Ranges to rows, on executors.

Imports ``binlog``, ``client``, ``lookup``, ``options``, ``records``, ``snapshot``.
"""
