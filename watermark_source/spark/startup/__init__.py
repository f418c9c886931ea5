"""What makes the processes that Spark starts ready sooner.

Imports no other package.
"""
