"""What to read, and where to begin: options before connecting.

Imports ``binlog``, ``client``, ``records``.
"""
