"""Pages of a project's streams for people: read from the same records as the commands, and nothing is written by them.

Shown in Airflow by `penstock.airflow.plugin`, and alone by `penstock ui`.
"""
