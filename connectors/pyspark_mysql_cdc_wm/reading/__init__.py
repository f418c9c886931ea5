"""Reading of ranges on executors.

Imports ``binlog``, ``client``, ``lookup``, ``options``, ``records``, ``snapshot``.
"""
