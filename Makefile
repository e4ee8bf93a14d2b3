# Penstock. `make help` lists what can be asked for; every target can run on a fresh clone.
# Needs Python 3.11, 3.12 or 3.13 (another name or place: make PYTHON=...), Java 17 or newer, git and make.

PYTHON ?= .venv/bin/python python3.11 python3.12 python3.13 python3
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup demo demo-engine demo-kafka try-servers test soak check bench lock clean machine packages archive servers checkers mypy pytest wheel
MAKEFLAGS += --no-builtin-rules --no-print-directory

venv := $(CURDIR)/.venv/bin/python
# Spark's workers must be the interpreter of the driver; tests and programs find the package without installing it again.
export PYSPARK_PYTHON := $(venv)
export PYSPARK_DRIVER_PYTHON := $(venv)
# Images like to set this. Python then compiles every module anew in each process: two thirds of a start of Airflow.
unexport PYTHONDONTWRITEBYTECODE

fits := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))
# All of that name on PATH: where pyenv's comes first and is of no version that fits, the system's may.
find_python = $(shell type -aP $(PYTHON) | while read -r p; do if "$$p" -c '$(fits)' &>/dev/null; then echo "$$p"; break; fi; done)
no_python := Python 3.11, 3.12 or 3.13 is needed and none of `$(PYTHON)` is one: install python3.11 and python3.11-venv, \
  or name one with make PYTHON=/path/to/python3.11

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: packages archive ## install all that is needed into .venv and .jars (a second time takes no time)

demo: setup ## run the flights stream on real data through Airflow: killed, recovered, compared with pandas (KEEP=1)
	@$(venv) -m tools.demo

demo-engine: setup ## the same without Airflow
	@$(venv) -m tools.demo --engine

demo-kafka: setup ## run a stream from Kafka into Delta, Kafka and Postgres: a burst, driver and broker killed
	@$(venv) -m tools.jars kafka
	@$(venv) -m tools.demo_kafka

try-servers: setup ## run a Kafka broker and a PostgreSQL to try a job of your own with, until Ctrl-C (TOPICS="readings:3")
	@$(venv) -m tools.jars kafka
	@$(venv) -m tools.try_servers $(TOPICS)

# Most long steps take one core each: they run side by side. mypy, a minute of one, runs beside the first tests.
test: machine ## run the checkers, then what this run draws of all tests but those of `make soak`
	@$(MAKE) --jobs=2 setup servers checkers
	@$(MAKE) --jobs=2 mypy pytest

# In memory where there is room: thousands of fsyncs say nothing new about a disk, and take half of a property's time.
pytest: packages
	@memory=/tmp; room=$$(df --output=avail /dev/shm 2>/dev/null | tail -1); \
	  if [ "$${room:-0}" -gt 8000000 ] && ! grep -q ' /dev/shm .*noexec' /proc/mounts; then memory=/dev/shm; fi; \
	  export TMPDIR=$$(mktemp -d "$$memory/t.XXXX"); chmod 755 "$$TMPDIR"; trap 'rm -rf "$$TMPDIR"' EXIT; \
	  $(venv) -m pytest -n 2 --dist loadfile --no-loadscope-reorder --durations=15 --sample -m "not soak"

soak: machine ## run the long storms: what `make test` claims already, over more crashes, changes and batches
	@$(MAKE) --jobs=2 setup servers
	@$(venv) -m tools.jars yarn
	@PENSTOCK_EXAMPLES=20 $(venv) -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "soak or sample or hypothesis"

check: machine ## run the checkers and the fast tests: what one runs all day
	@$(MAKE) --jobs=2 setup mypy checkers
	@$(venv) -m pytest -n 2 --dist loadfile --no-loadscope-reorder --sample -m "not slow and not integration and not spark and not soak"

bench: setup ## measure side by side with the peers and print the ratios
	@$(venv) -m benchmarks

wheel: packages ## build dist/penstock-VERSION-py3-none-any.whl, to install where streams run
	@.venv/bin/uv build --quiet --wheel --no-build-isolation --python $(venv) --out-dir dist .
	@ls dist/*.whl

lock: setup ## resolve pyproject.toml into requirements/all.txt (make lock UPGRADE=1: to the newest that fit)
	@.venv/bin/uv pip compile --quiet --universal --generate-hashes --no-header --python-version 3.11 --all-extras \
	  $(if $(UPGRADE),--upgrade) pyproject.toml --output-file requirements/all.txt
	@echo "requirements/all.txt is up to date; make setup installs it"

clean: ## remove what runs, tests and builds leave behind; keeps .venv, .jars and all checkpoints
	@rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .demo .demo-kafka .bench .coverage .coverage.* htmlcov \
	  build dist spark-warehouse metastore_db derby.log
	@find . -path ./.venv -prune -o -path ./.git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

# What the machine lacks ends make in one line, before anything is downloaded.
# $(error) does that; a failing command would add make's own line. $$ keeps eval from reading what the shell said.
machine:
	$(eval python := $$(find_python))
	$(eval trouble := $$(if $$(python),$$(shell $$(python) -m tools.prerequisites),$$(no_python)))
	$(if $(trouble),$(error $(trouble)))
	@:

packages: machine
	@$(python) -m tools.setup

archive: packages
	@$(venv) -m tools.java_archive

# The HDFS that tests start. Tests fetch it too; here what goes wrong is told before they run.
servers: packages
	@$(venv) -m tools.jars hdfs kafka

mypy: packages
	@$(venv) -m mypy

checkers: packages
	@$(venv) -m ruff format --check --quiet . || { echo "format: run .venv/bin/ruff format ." >&2; exit 1; }
	@$(venv) -m ruff check --quiet .
	@$(venv) -m tools.check_tree
	@$(venv) -m tools.check_layers
	@$(venv) -m tools.check_light_imports
	@$(venv) -m tools.check_fault_table
	@$(venv) -m tools.check_test_twins
	@$(venv) -m tools.check_prose
