"""Ranges of offsets to rows, on the executors.

Imports ``client``, ``cluster``, ``errors``, ``lookup``, ``records``.
"""
