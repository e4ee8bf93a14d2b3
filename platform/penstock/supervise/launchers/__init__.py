"""Start drivers: as processes of this machine, or by `spark-submit`."""
