"""A server's settings, tables, binlog. Imports ``binlog``, ``client``, ``errors``, ``options``, ``records``."""
