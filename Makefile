# Tasks of a checkout; `make help` lists them. PYTHON=… chooses the interpreter that makes .venv.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install -qq -c constraints.txt

# The question as it was typed: make does not expand a $ in it, and the shell reads it from the environment.
override Q := $(value Q)
export Q

.DEFAULT_GOAL := help
.PHONY: help ask test test-thorough test-slow lint format clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

ask: .venv/.core  ## answer Q="…" from the demo encyclopedia; without Q, show a prompt
	@$(BIN)/ragqa ask $(if $(Q),-- "$$Q") || [ $$? -eq 1 ]  # 1 is a declined question, not a failure

test: .venv/.test  ## run the fast tests, two at a time
	@$(BIN)/python -m pytest -q -n 2 --dist worksteal

test-thorough: .venv/.test  ## run the fast tests, and those that start Ray or take ten seconds or more
	@$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not slow and not gpu"

test-slow: .venv/.test  ## run the tests that take minutes
	@$(BIN)/python -m pytest -q -m "slow and not gpu"

lint: .venv/.test  ## check style, format and types
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy ragqa index pipelines eval

format: .venv/.test  ## format the code and fix what ruff can fix
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
	@echo 'adding torch and the other packages of the tests to .venv (once, a few minutes)' >&2
	@$(PIP) -e '.[torch,serve,mcp,cpu,wiki,eval,ray,dev]'
	@touch $@
