"""Where the members of an alignment group meet: a table in a file of SQLite, or of a server that SQLAlchemy knows.

Imports ``clock``, ``errors``, ``option_table``, ``planning``.
"""
