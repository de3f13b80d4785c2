# Two commands matter: `make demo` and `make test`. Both set up .venv first, which costs time once.

PYTHON ?= python3

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
EXTRAS := mpi,examples,benchmarks,dev
TYPED := tensoropt collectives examples benchmarks

export TF_CPP_MIN_LOG_LEVEL ?= 2

.PHONY: help setup demo test kernels pytest lint style types format clean
.DELETE_ON_ERROR:

help:
	@echo "make demo    train the example network on 4 ranks"
	@echo "make test    ruff, mypy and every test"
	@echo "make lint    ruff and mypy alone"
	@echo "make format  let ruff rewrite the files"
	@echo "make setup   .venv alone (the others do it too)"
	@echo "make clean   remove .venv and every cache"

setup: $(STAMP)

# An environment that works is kept, with its interpreter (two of them in one would break it), and pip
# skips what is there already. One whose making was interrupted is made afresh. pip would compile
# every file of every package; Python compiles those that are imported, which are few.
$(STAMP): pyproject.toml setup.cfg constraints.txt
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile \
		-c constraints.txt -e ".[$(EXTRAS)]"
	$(BIN)/python -m pip check --disable-pip-version-check
	touch $@

demo: $(STAMP)
	$(BIN)/mpirun -np 4 $(BIN)/python examples/train_digits.py </dev/null

# Two at a time: types are checked while the search's kernels are compiled, which both workers of
# pytest would do else.
test: style
	$(MAKE) --no-print-directory -j 2 types kernels
	$(MAKE) --no-print-directory pytest

kernels: $(STAMP)
	$(BIN)/python -m benchmarks.search.warm

# No test at all (status 5) is a failure.
pytest: $(STAMP)
	$(BIN)/python -m pytest tests -n 2 --dist worksteal --timeout 300

lint: style types

style: $(STAMP)
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .

types: $(STAMP)
	$(BIN)/python -m mypy $(TYPED)

format: $(STAMP)
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .

clean:
	rm -rf $(VENV) build dist tensoropt.egg-info
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find tensoropt collectives examples benchmarks tests -name __pycache__ -type d -prune \
		-exec rm -rf {} + 2>/dev/null || true
