# What is done in a checkout; `make help` lists it. PYTHON=… chooses the interpreter .venv is made with.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install -qq -c constraints.txt

# The question as it was typed: make expands no $ in it, and the shell sees only the variable.
override Q := $(value Q)
export Q

.DEFAULT_GOAL := help
.PHONY: help ask test test-thorough test-slow lint format clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

ask: .venv/.core  ## answer Q="…" from the encyclopedia that comes along; without Q, ask at a prompt
	@$(BIN)/ragqa ask $(if $(Q),-- "$$Q") || [ $$? -eq 1 ]  # 1 is a declined question, not a failure

test: .venv/.test  ## run the fast tests, two at a time
	@$(BIN)/python -m pytest -q -n 2 --dist worksteal

test-thorough: .venv/.test  ## run these, and those that start Ray or take ten seconds and more
	@$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not slow and not gpu"

test-slow: .venv/.test  ## run those that take minutes
	@$(BIN)/python -m pytest -q -m "slow and not gpu"

lint: .venv/.test  ## check style, format and types
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy ragqa index pipelines eval

format: .venv/.test  ## format the code and mend what ruff can mend
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

clean:  ## remove .venv, caches and builds; runs/ stays
	rm -rf .venv build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find ragqa index pipelines eval tests -name __pycache__ -prune -exec rm -rf {} +

.venv/.core: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "ragqa needs Python 3.11 or newer: make PYTHON=python3.11 …")'
	@echo 'setting up .venv (once, about a minute)' >&2
	@$(PYTHON) -m venv .venv
	@$(PIP) -e .
	@touch $@

.venv/.test: .venv/.core
	@echo 'adding torch and what else the tests need to .venv (once, a few minutes)' >&2
	@$(PIP) -e '.[torch,serve,cpu,wiki,eval,ray,dev]'
	@touch $@
