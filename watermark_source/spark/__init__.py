"""The Spark side: Data Source V2 reader, input partitions, markers, progress reports, follow_watermark.

Imports ``arrow_columns``, ``clock``, ``contract``, ``durations``, ``errors``, ``group_store``,
``grouping``, ``installation``, ``option_table``, ``planning``, ``signals``, ``spark_process``,
``status_model``, ``supported_spark``, ``words``.
"""
