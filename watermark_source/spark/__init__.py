"""The Spark side: Data Source V2 reader, input partitions, markers, progress reports, follow_watermark."""
