# Two commands for a fresh clone: `make demo` and `make test`. Each first makes what it needs.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := install --quiet --disable-pip-version-check

.PHONY: help demo test lint types unit campaign gpu bench tables notebooks docs docs-serve dist wheel-test test-lowest clean

help:  ## list the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

# The demo needs one extra; the checks add the others to the same environment, whichever comes first.
.venv/.demo: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip $(INSTALL) --constraint constraints.txt torch
	$(BIN)/pip $(INSTALL) --constraint constraints.txt --editable '.[report]'
	@touch $@

.venv/.installed: .venv/.demo
	$(BIN)/pip $(INSTALL) --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: .venv/.demo  ## train networks and simplexes of networks on scikit-learn's digits, compare them, write a report
	$(BIN)/subspaces demo

test: lint types unit  ## all checks: ruff, mypy and pytest

lint: .venv/.installed  ## ruff
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: .venv/.installed  ## mypy --strict
	$(BIN)/mypy

unit: .venv/.installed  ## pytest on two processes
	OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -n 2 --dist loadfile -m 'not gpu'

campaign: .venv/.installed  ## damage, kills, crashes, nonsense: N=1000 KILLS=200 SEED=0
	OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python -m campaign -n $(or $(N),1000) --kills $(or $(KILLS),200) \
		--seed $(or $(SEED),0) $(OPTIONS)

gpu: .venv/.installed  ## the tests that need a CUDA device
	$(BIN)/pytest -m gpu

bench: .venv/.installed  ## the time of a training step over a plain one's
	$(BIN)/python benchmarks/step.py

tables: .venv/.installed  ## the tables of README.md and RESULTS.md, from the files under results/
	$(BIN)/python docs/results.py

docs: .venv/.installed  ## the site, into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: .venv/.installed  ## show the site on http://127.0.0.1:8000 while you write
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

notebooks: .venv/.installed  ## run the notebooks under docs/notebooks/ and keep their outputs: NAMES="line lora"
	$(BIN)/python docs/build_notebooks.py $(NAMES)

.venv-dist/.installed: constraints.txt
	$(PYTHON) -m venv .venv-dist
	.venv-dist/bin/pip $(INSTALL) --constraint constraints.txt build setuptools
	@touch $@

dist: .venv-dist/.installed  ## the source distribution, and from it the wheel, in dist/
	rm -rf dist
	.venv-dist/bin/python -m build --no-isolation

wheel-test: dist  ## install the wheel without extras into an empty environment, and use it
	rm -rf .venv-wheel
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/pip $(INSTALL) --constraint constraints.txt dist/*.whl
	OMP_NUM_THREADS=1 .venv-wheel/bin/python -I tests/installed.py README.md

# What old packages do that newer ones deprecate is no error.
LOWEST := tests/core tests/networks tests/evaluation tests/reports tests/export tests/integrations

.venv-lowest/.installed: pyproject.toml constraints-lowest.txt
	rm -rf .venv-lowest
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/pip $(INSTALL) --constraint constraints-lowest.txt torch
	.venv-lowest/bin/pip $(INSTALL) --constraint constraints-lowest.txt --editable \
		'.[figures,hub,images,lightning,onnx,peft,report,test,transformers]'
	@touch $@

test-lowest: .venv-lowest/.installed  ## pytest with the lowest versions that pyproject.toml allows: TESTS="tests/core …"
	OMP_NUM_THREADS=1 .venv-lowest/bin/python -m pytest -m 'not gpu' -W ignore::DeprecationWarning \
		$(or $(TESTS),$(LOWEST))

clean:  ## remove the environments, distributions, the site and all caches
	rm -rf .venv .venv-* build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info
