"""Run jobs: plan the batch, run one Spark job for it, commit, publish."""
