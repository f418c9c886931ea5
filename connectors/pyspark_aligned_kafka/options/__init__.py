"""Options of the source: what to read, where to begin and to end.

Imports ``client``, ``errors``, ``records``.
"""
