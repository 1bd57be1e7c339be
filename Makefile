# `make demo` and `make test` do all their own set-up, and are quick when repeated.
# make PYTHON=python3.12 TORCH=torch==2.11.0 ... overrides the defaults.
PYTHON ?= python3
TORCH ?= $(shell grep '^torch==' constraints.txt)
VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(wildcard src/bignn/csrc/*) CMakeLists.txt pyproject.toml
CPP := $(wildcard src/bignn/csrc/*.cpp src/bignn/csrc/*.h tests/kernels/emulated/*.cpp)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test docs lint format browser emulator sanitize wheel setup clean
.DELETE_ON_ERROR:

demo: setup
	$(BIN)/bignn demo

test: lint
	$(BIN)/python -c "from bignn.kernels import native; assert native.is_available(), native.why_not('portable')"
	$(BIN)/pytest -rs

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run -Werror $(CPP)
	$(BIN)/mypy

format: setup
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CPP)

# docs/api.md and docs/cli.md from the code; a test holds them to it.
docs: setup
	$(BIN)/python tools/write_docs.py

# Reports are looked at in Chromium. `make test` takes the one that is there, and skips those tests
# where there is none (pytest's last lines say so); this installs it, as root on a system with apt.
browser: setup
	@PYTHONPATH=tests $(BIN)/python -c "import browser, sys; sys.exit(not browser.find())" \
		|| { test "$$(id -u)" = 0 && command -v apt-get > /dev/null && apt-get update -qq > /dev/null \
		&& DEBIAN_FRONTEND=noninteractive \
		apt-get install -y -qq --no-install-recommends chromium > /dev/null; } \
		|| echo "no Chromium, and none could be installed: pages are not looked at in a browser"

# NEON kernels are cross-compiled and run by an emulator; as with the browser, `make test` skips that
# test where they are missing, and this installs them.
emulator:
	@{ command -v aarch64-linux-gnu-g++ && command -v qemu-aarch64; } > /dev/null \
		|| { test "$$(id -u)" = 0 && command -v apt-get > /dev/null && apt-get update -qq > /dev/null \
		&& DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
		g++-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user > /dev/null; } \
		|| echo "no cross compiler or emulator, and none could be installed: NEON kernels are not run"

# The tests of the packed engine on a build that stops at any access out of bounds and any undefined
# behaviour. Python itself is not such a build, so the sanitizer's library (and the C++ one, whose
# exceptions it watches) must be there first; Python never gives all its memory back, so leaks are
# not looked for.
# Reports go past pytest to the terminal (--capture=sys). Forks are left out: the sanitizer's own
# locks do not survive them. So is the emulator, which runs no code of this build.
SANITIZED := $(CURDIR)/build/sanitize
SANITIZE_TESTS := tests/kernels tests/runtime
PRELOAD = $(shell g++ -print-file-name=libasan.so) $(shell g++ -print-file-name=libstdc++.so)
SANITIZE_ENV = LD_PRELOAD="$(PRELOAD)" ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc \
	UBSAN_OPTIONS=print_stacktrace=1 PYTHONPATH=$(SANITIZED) PYTHONDONTWRITEBYTECODE=1
sanitize: setup
	cmake -S . -B $(SANITIZED) -DCMAKE_PROJECT_INCLUDE=$(CURDIR)/tests/native/sanitize.cmake \
		-DCMAKE_CXX_COMPILER=g++ -DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python \
		-Dnanobind_ROOT=$$($(BIN)/python -m nanobind --cmake_dir) > /dev/null
	cmake --build $(SANITIZED) --parallel 2
	ln -sfn $(filter-out %/csrc,$(wildcard $(CURDIR)/src/bignn/*)) $(SANITIZED)/bignn/
	cp tests/native/sitecustomize.py $(SANITIZED)/
	$(SANITIZE_ENV) $(BIN)/python -c "import bignn._native as n; assert n.__file__.startswith('$(SANITIZED)/'), n"
	$(SANITIZE_ENV) $(BIN)/pytest -p no:cacheprovider -n 0 --capture=sys -k "not fork and not emulated" $(SANITIZE_TESTS)
	@echo "sanitize: no access out of bounds, no undefined behaviour in $(SANITIZE_TESTS)"

# A wheel with all instruction sets of this architecture and a manylinux tag, in dist/; installed
# where there is no compiler, it must predict. Python 3.12 and later build one for all of them.
wheel: setup
	$(BIN)/python tools/build_wheel.py
	$(BIN)/pytest -n 0 -m wheel tests/test_wheel.py

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
