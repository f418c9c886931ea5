"""Compiled decoding of a binlog's bytes to tables of events, and of its statements.

Imports nothing beside it.
"""
