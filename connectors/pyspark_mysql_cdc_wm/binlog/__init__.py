"""A binlog's bytes to tables of events, compiled.

Imports nothing beside it.
"""
