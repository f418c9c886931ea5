"""MySQL tables as a Spark stream with its own watermark: a snapshot, then the binlog.

Spark imports this module whenever any format is looked up, so it imports nothing.
"""
