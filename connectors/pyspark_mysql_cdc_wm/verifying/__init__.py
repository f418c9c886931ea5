"""Comparison of a copy of a table with the server that it is a copy of, while both are written.

Imports ``client``, ``options``, ``records``, ``snapshot``.
"""
