# The commands of the house. All of them set up .venv first; that takes a tenth of a second when nothing has changed.
#   make demo [ENGINE=hf|vllm] [ARGS=…]   make test [TESTS=…] [ARGS=…]
# PYTHON=python3.12 chooses the Python of .venv (3.10 to 3.13; 3.11 or newer for vLLM).

SETUP := $(or $(PYTHON),python3) tools/setup_env.py
RUN := .venv/bin/python
TESTS ?=
ARGS ?=
# One computes in the trainers' tests while the others mostly wait in those of the cluster: enough for two cores.
PROCESSES ?= 3
TRIALS ?= 1000
HOURS ?= 0.1
SEED ?= 1
AT_ONCE ?= 1
LAB ?=

.PHONY: help demo test faults night truth pictures check bench gpu setup lock hooks clean
.DEFAULT_GOAL := help

help:
	@echo 'make demo               set up, then train a tiny model under rltui, on this machine'
	@echo 'make demo ENGINE=vllm   the same with vLLM as the engine (1 GB more)'
	@echo 'make test               set up everything, check, run all tests'
	@echo 'make test TESTS=tests/unit/test_errors.py ARGS=-x'
	@echo 'make faults [TRIALS=1000] [SEED=1]   submissions under faults, in numbers'
	@echo 'make night [HOURS=0.1] [AT_ONCE=1] [LAB=1]   hands-off mode against random faults, in numbers'
	@echo 'make truth              what import, memory, plan and why are worth on known cases'
	@echo 'make pictures           the pictures of README and docs, from a recording and canned data'
	@echo 'make check              lint, format, types, import contracts, spelling'
	@echo 'make bench              measure the budgets'
	@echo 'make gpu [ARGS="--model FOLDER"]   on a machine with a card: what only a card can show'
	@echo 'make setup              set up everything, run nothing'
	@echo 'make lock [ARGS=--upgrade]   resolve constraints/lock.txt anew'
	@echo 'make hooks              run the checks before each commit'
	@echo 'make clean              remove .venv and all caches of this folder'

demo:
	@$(SETUP) $(if $(filter vllm,$(ENGINE)),demo-vllm,demo)
	@.venv/bin/rltui demo $(if $(ENGINE),--engine $(ENGINE)) $(ARGS)

test: setup
	@$(RUN) tools/static_checks.py
	@$(RUN) -m pytest $(or $(TESTS),-n $(PROCESSES)) $(ARGS)

# Of a hundred trials each, with a run root of their own; a hundred of every kind takes four minutes at a load of 5.
faults: setup
	@FAULT_TRIALS=$(TRIALS) FAULT_SEED=$(SEED) $(RUN) -m pytest -s tests/cluster/test_submit_faults.py tests/cluster/test_submit_kills.py $(ARGS)

# Runs that go on by themselves while faults happen to them; ends with 1 where anything went wrong.
night: setup
	@cd tests/cluster && PYTHONPATH=../..:.. ../../$(RUN) nights.py --hours $(HOURS) --seed $(SEED) $(if $(LAB),--lab,--at-once $(AT_ONCE)) $(ARGS)

# What each predictor is worth on its cases; ARGS=--write renews docs/truth.md.
truth: setup
	@$(RUN) tools/truth.py $(ARGS)

# No run and no cluster is needed; tests/fixtures/recording has the run that moves.
pictures: setup
	@$(RUN) tools/screenshot.py $(ARGS)

check:
	@$(SETUP) check
	@$(RUN) tools/static_checks.py

# A measurement that lacks what it needs on this machine says so and ends with 2.
bench: setup
	@broken=0; for file in tests/bench/bench_*.py; do echo "== $$file"; $(RUN) $$file || [ $$? -eq 2 ] || broken=1; done; \
	exit $$broken

# As long as half an hour. Without a card it says what it could not show and ends with 2.
gpu: setup
	@$(RUN) tests/bench/gpu.py $(ARGS)

setup:
	@$(SETUP) test

lock:
	@$(SETUP) check
	@$(RUN) tools/lock.py $(ARGS)

hooks:
	@$(SETUP) check
	@.venv/bin/pre-commit install

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache tests/artifacts build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
