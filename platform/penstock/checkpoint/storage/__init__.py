"""Where checkpoints lie: stores, folders of this machine and of HDFS, and files that survive a power cut."""
