"""The store of an alignment group: a table in a SQLite file, or in any database server that SQLAlchemy supports.

Imports ``clock``, ``errors``, ``installation``, ``planning``.
"""
