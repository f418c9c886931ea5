"""A server's settings, tables, and ends of its binlog. Imports ``binlog``, ``client``, ``options``, ``records``."""
