"""Bytes of record batches to Arrow columns, by compiled code.

Imports ``client``, ``errors``.
"""
