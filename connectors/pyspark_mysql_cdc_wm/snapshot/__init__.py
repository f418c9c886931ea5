"""What tables held at a place of the binlog.

Imports ``client``, ``lookup``, ``options``, ``records``.
"""
