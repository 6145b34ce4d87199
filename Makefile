# Everything a person or a machine runs here. Needs Python >= 3.10, pip, g++ and make; the rest goes into .venv.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
ARGS   ?=
FUZZ_TIME ?= 60
FUZZ_EXAMPLES ?= 3000

export CMAKE_BUILD_PARALLEL_LEVEL ?= 2
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# Readers whose metadata asks for torchvision and cloud clients, hundreds of MB that reading tokens does not use;
# what they do import is in the extra `test`.
READERS   := mosaicml-streaming==0.13.0 litdata==0.2.76

NATIVE    := $(wildcard native/*.cpp native/*.hpp native/*.inc native/bindings/* native/emulator/* src/gristmill/engines/cuda/*.h src/gristmill/engines/cuda/*.cu)
SANITIZED := build/sanitized
# The system's, if it is new enough for CMakeLists.txt.
CMAKE     := $(shell printf '3.18\n%s\n' "$$(cmake --version 2>/dev/null | sed -n '1s/.* //p')" | sort -CV \
               && command -v cmake || echo $(BIN)/cmake)

.PHONY: demo test browser lint types native-test fuzz bench nightly clean
.DELETE_ON_ERROR:

demo: $(VENV)/installed  ## text found on this machine to shards: planned, written, verified, shown
	$(BIN)/gristmill demo

test: lint types native-test browser  ## everything that must hold before a change goes in
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile

# The live page is tested in Chromium.
browser:
	@if [ -n "$$GRISTMILL_CHROMIUM" ]; then exit 0; fi; \
	for name in chromium chromium-browser google-chrome; do if command -v $$name > /dev/null; then exit 0; fi; done; \
	if ! command -v apt-get > /dev/null; then as=none; elif [ "$$(id -u)" = 0 ]; then as=; \
	elif sudo -n true 2> /dev/null; then as=sudo; else as=none; fi; \
	if [ "$$as" = none ]; then \
	  echo 'make test needs Chromium: install it (apt-get install chromium), or set GRISTMILL_CHROMIUM to one' >&2; exit 1; fi; \
	echo 'installing Chromium, in which the live page is tested: a minute or two, once'; \
	$$as apt-get update -q > /dev/null && $$as env DEBIAN_FRONTEND=noninteractive \
	  apt-get install -y -q --no-install-recommends chromium > /dev/null

lint: $(VENV)/installed-for-tests
	$(BIN)/ruff check .

types: $(VENV)/installed-for-tests
	$(BIN)/mypy

native-test: $(CMAKE)  ## native/tests and a short run of native/fuzz, under ASan and UBSan
	$(CMAKE) -S . -B $(SANITIZED) -G "Unix Makefiles" --log-level=WARNING -DCMAKE_BUILD_TYPE=Debug \
	  -DCMAKE_CXX_FLAGS=-O1 -DGRISTMILL_SANITIZE=ON -DGRISTMILL_TESTS=ON -DGRISTMILL_FUZZ=ON
	$(CMAKE) --build $(SANITIZED) -- --no-print-directory -s
	cd $(SANITIZED) && $(dir $(abspath $(CMAKE)))ctest --output-on-failure --no-tests=error

fuzz: native-test $(VENV)/installed-for-tests  ## FUZZ_TIME seconds a native target, FUZZ_EXAMPLES examples a Python one
	for target in $(notdir $(basename $(wildcard native/fuzz/fuzz_*.cpp))); do \
	  $(SANITIZED)/$$target -runs=1000000000 -max_total_time=$(FUZZ_TIME) -seed=$$(date +%s) || exit 1; done
	GRISTMILL_FUZZ_EXAMPLES=$(FUZZ_EXAMPLES) $(BIN)/python -m pytest tests/test_fuzz.py

bench: $(VENV)/installed  ## make bench ARGS="-t path/to/tokenizer corpus.jsonl"
	$(BIN)/gristmill bench $(ARGS)

nightly: $(VENV)/installed-for-tests  ## make nightly ARGS="--tokenizers DIR --corpus FILE.jsonl"
	$(BIN)/python benchmarks/exactness.py --random 1000000 $(ARGS)

clean:
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +

# Editable: a change in Python is live, a change in native code or build files installs anew.
$(VENV)/installed: $(BIN)/python pyproject.toml CMakeLists.txt $(NATIVE)
	@echo 'building the native core and fetching what it needs: a minute or two, once'
	$(BIN)/python -m pip install -q -e .
	touch $@

$(VENV)/installed-for-tests: $(BIN)/python pyproject.toml CMakeLists.txt $(NATIVE)
	@echo 'building the native core and fetching what the tests need: a few minutes, once'
	$(BIN)/python -m pip install -q -e '.[test]'
	$(BIN)/python -m pip install -q --no-deps $(READERS)
	touch $(VENV)/installed $@

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(BIN)/cmake: | $(BIN)/python
	$(BIN)/python -m pip install -q cmake
