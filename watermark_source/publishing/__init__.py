"""The output watermark of a query is announced after each committed batch: to tables here, to topics by a connector.

Imports ``durations``, ``errors``, ``installation``, ``local_path``, ``planning``, ``spark``, ``status_model``.
"""
