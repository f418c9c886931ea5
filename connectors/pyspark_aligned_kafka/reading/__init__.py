"""Ranges of offsets to rows, on the executors. Imports ``records``, ``lookup``, ``cluster``, ``client``, ``errors``."""
