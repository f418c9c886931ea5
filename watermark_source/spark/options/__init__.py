"""The options of every source: their table, checks, and what they mean for the planner.

Imports ``connector``.
"""
