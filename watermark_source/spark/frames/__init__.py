"""What a user calls on streaming DataFrames: follow_watermark, data_rows, markers, split_late.

Imports ``columns``.
"""
