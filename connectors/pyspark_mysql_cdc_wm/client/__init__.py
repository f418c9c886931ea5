"""Connections to a MySQL server: logins, statements, dumps of the binlog.

Imports ``binlog``.
"""
