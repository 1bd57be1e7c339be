# `make demo` and `make test` do all their own set-up, and are quick when repeated.
# make PYTHON=python3.12 TORCH=torch==2.11.0 ... overrides the defaults.
PYTHON ?= python3
TORCH ?= $(shell grep '^torch==' constraints.txt)
VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(wildcard src/bignn/csrc/*) CMakeLists.txt pyproject.toml
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test lint setup clean
.DELETE_ON_ERROR:

demo: setup
	$(BIN)/bignn demo

test: lint
	$(BIN)/python -c "from bignn.kernels import native; assert native.is_available(), native.why_not('portable')"
	$(BIN)/pytest

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

setup: $(VENV)/.installed

# torch by itself, so that pip never looks for another build of it; a stamp per TORCH.
$(VENV)/.$(TORCH): constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q "$(TORCH)"
	touch "$@"

# Editable: Python changes need no reinstall, C++ changes do.
$(VENV)/.installed: $(VENV)/.$(TORCH) $(SOURCES)
	grep -v '^torch==' constraints.txt > $(VENV)/constraints.txt
	$(BIN)/pip install -q -c $(VENV)/constraints.txt scikit-build-core nanobind
	$(BIN)/pip install -q -c $(VENV)/constraints.txt --no-build-isolation -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist
