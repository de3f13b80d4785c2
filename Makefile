# Two commands matter: `make demo` and `make test`. Both set up .venv first, which costs time once.

PYTHON ?= python3

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS := .venv-docs
HOROVOD_STAMP := $(VENV)/.horovod
# pip would compile every file of every package; Python compiles those that are imported, which are few.
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps
COMPILE_KERNELS = $(BIN)/python -m tensoropt.planner.kernels
TYPED := tensoropt collectives examples benchmarks reproduction tools tests/machines tests/oracles
# Warnings of the compiler are errors in tests, and not where a user's newer compiler has new ones.
TESTED_CXX := $(if $(filter default undefined,$(origin CXX)),c++,$(CXX)) -Werror
PYTEST := CXX="$(TESTED_CXX)" $(BIN)/python -m pytest tests --quiet --workers 4 --timeout 900
# Proofs repeat tests with more seeds, models and sizes.
TESTS_OF_pytest := not proof
TESTS_OF_proofs := proof

# Horovod 0.28.1, the newest, compiles with TensorFlow 2.18 at most.
HOROVOD := horovod==0.28.1
HOROVOD_SETTINGS := HOROVOD_WITH_TENSORFLOW=1 HOROVOD_WITH_MPI=1 HOROVOD_WITHOUT_GLOO=1 \
	HOROVOD_WITHOUT_PYTORCH=1 HOROVOD_WITHOUT_MXNET=1
CAN_HAVE_HOROVOD := $(BIN)/python -c 'import sys; from importlib.metadata import version; \
	sys.exit([int(n) for n in version("tensorflow").split(".")[:2]] > [2, 18])'
NOT_TESTED := NOT TESTED: Horovod, which does not compile with a TensorFlow as new as this one

export TF_CPP_MIN_LOG_LEVEL ?= 2
# Where Python may not keep what it compiled, each process compiles TensorFlow again: 10 s.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup horovod demo docs pictures test proofs sanitize test-page test-versions kernels pytest lint \
	style types format clean
.DELETE_ON_ERROR:

help:
	@echo "make demo    train the example network on 4 ranks"
	@echo "make test    ruff, import-linter, mypy and every test that is no long proof"
	@echo "make proofs  long proofs: what make test checks, with more seeds, models and sizes"
	@echo "make sanitize drive the collectives in C++ at random under sanitizers, for SECONDS=60 twice"
	@echo "make test-page click through pages of plans in headless Chromium, which has to be on the machine"
	@echo "make test-versions  try Python 3.10 to 3.13 with TensorFlow 2.16 to the newest; 600 MB a pair"
	@echo "make docs    the documentation as a site, in site/"
	@echo "make pictures plan a Transformer and draw its pictures for docs/, in a minute or two"
	@echo "make lint    ruff, import-linter and mypy alone"
	@echo "make format  let ruff rewrite the files"
	@echo "make setup   .venv alone (the others do it too)"
	@echo "make horovod Horovod into .venv (make test does it too); takes two minutes once"
	@echo "make clean   remove .venv and every cache"

setup: $(STAMP)

# An environment that works is kept, with its interpreter (two of them in one would break it), and pip
# skips what is there already. One whose making was interrupted is made afresh. constraints.txt has
# all that is needed, which pip checks at the end. TensorFlow is two thirds of it, so it is unpacked
# beside the rest, and beside the compilation of kernels, which need none of it.
$(STAMP): pyproject.toml setup.cfg constraints.txt
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	grep '^tensorflow==' constraints.txt >$(VENV)/tensorflow.txt
	grep -v '^tensorflow==' constraints.txt >$(VENV)/others.txt
	$(MAKE) --no-print-directory -j 2 $(VENV)/tensorflow.txt.installed $(VENV)/kernels
	$(INSTALL) --no-build-isolation -e .
	$(BIN)/python -m pip check --disable-pip-version-check
	touch $@

$(VENV)/%.txt.installed: $(VENV)/%.txt
	$(INSTALL) -r $<
	touch $@

$(VENV)/kernels: $(VENV)/others.txt.installed $(shell find tensoropt -name '*.py')
	$(COMPILE_KERNELS)
	touch $@

# Apart from the rest, since `make demo` needs none of it. What pip has compiled once it keeps for
# other environments; after a change of TensorFlow it has to be told `--no-cache-dir`.
horovod: $(STAMP)
	@if $(CAN_HAVE_HOROVOD); then $(MAKE) --no-print-directory $(HOROVOD_STAMP); fi

$(HOROVOD_STAMP): $(STAMP) constraints-horovod.txt
	$(INSTALL) -r constraints-horovod.txt
	PATH="$(CURDIR)/$(BIN):$$PATH" MAKEFLAGS=-j2 $(HOROVOD_SETTINGS) \
		$(INSTALL) --no-build-isolation $(HOROVOD)
	$(BIN)/python -m pip check --disable-pip-version-check
	touch $@

demo: $(STAMP)
	$(BIN)/mpirun -np 4 $(BIN)/python examples/train_digits.py </dev/null

# In an environment of its own, so that no other command installs more.
docs: $(DOCS)/.installed
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs --quiet build --strict
	@echo "open site/index.html"

$(DOCS)/.installed: constraints-docs.txt
	$(PYTHON) -m venv --clear $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r $<
	touch $@

# The pictures of docs/reading-a-plan.md and README.md, from two real plans. Time ends their searches: a machine
# with other work may draw other plans than the page describes.
TRANSFORMER := --layers 2 --model-width 1024 --feed-forward-width 4096 --heads 16 --length 64 --batch 256 \
	--vocabulary 8192
PIPELINE := --layers 4 --model-width 512 --feed-forward-width 2048 --heads 8 --length 64 --batch 64 \
	--vocabulary 4096
PICTURES := frontier layers divisions memory
pictures: kernels
	$(BIN)/tensoropt plan examples/train_transformer.py --devices 16 --cluster 2x8-v100 --memory-limit 700MiB \
		--output $(VENV)/transformer.json -- $(TRANSFORMER) >/dev/null
	$(BIN)/tensoropt plan examples/train_transformer.py --devices 4 --cluster 8-v100-pcie --pipeline 4 \
		--microbatches 8 --output $(VENV)/pipeline.json -- $(PIPELINE) >/dev/null
	$(BIN)/tensoropt show $(VENV)/pipeline.json --picture schedule --plot docs/pictures/schedule.svg
	for name in $(PICTURES); do \
		$(BIN)/tensoropt show $(VENV)/transformer.json --picture $$name --plot docs/pictures/$$name.svg || exit 1; \
	done

# Two at a time: style is checked beside what tests need, and types beside the tests.
test: $(STAMP)
	$(MAKE) --no-print-directory -j 2 style pytest types

# Those that have changed: else each program that plans would compile them.
kernels: $(STAMP)
	@$(MAKE) --no-print-directory $(VENV)/kernels

# No test at all (status 5) is a failure. More workers than two cores: one waits for ranks, and others for time-outs.
pytest proofs: kernels horovod
	@if $(CAN_HAVE_HOROVOD); then $(PYTEST) -m "$(TESTS_OF_$@)"; else echo "$(NOT_TESTED)"; \
		$(PYTEST) -m "$(TESTS_OF_$@) and not horovod" && echo "$(NOT_TESTED)"; fi

SECONDS := 60
sanitize: $(STAMP)
	$(BIN)/python -m tests.oracles.sanitize --seconds $(SECONDS)

# The driver of the browser, apart from the rest, since nothing else needs it.
PAGES :=
SCREENSHOTS :=
test-page: $(VENV)/.page
	$(BIN)/python -m tests.oracles.page $(PAGES) $(if $(SCREENSHOTS),--screenshots $(SCREENSHOTS))

$(VENV)/.page: $(STAMP) constraints-page.txt
	$(INSTALL) -r constraints-page.txt
	touch $@

# Fresh environments in a temporary folder, one after another; passed pairs in KEEP are not tried again.
KEEP :=
test-versions: $(STAMP)
	$(BIN)/python -m tests.oracles.versions $(if $(KEEP),--keep $(KEEP))

lint: style types

style: $(STAMP)
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/lint-imports --no-logo --no-cache

types: $(STAMP)
	$(BIN)/python -m mypy $(TYPED)

format: $(STAMP)
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .

clean:
	rm -rf $(VENV) $(DOCS) build dist site tensoropt.egg-info
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find tensoropt collectives examples benchmarks reproduction tools tests -name __pycache__ -type d -prune \
		-exec rm -rf {} + 2>/dev/null || true
