"""The server's settings, tables, binlog ends. Imports ``binlog``, ``client``, ``errors``, ``options``, ``records``."""
