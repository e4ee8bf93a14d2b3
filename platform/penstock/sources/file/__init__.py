"""Read the files that appear in a folder, on local disk and HDFS.

`source` is what jobs name. On the driver `reader` plans batches from `listings` of the folder; in tasks `tasks` makes
rows of the planned files by `formats`.
"""
