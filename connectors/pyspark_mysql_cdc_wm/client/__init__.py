"""Connections to a server: logins, questions, dumps of the binlog.

Imports ``binlog``.
"""
