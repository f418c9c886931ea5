"""Where the members of an alignment group meet: a table of any database that SQLAlchemy knows."""
