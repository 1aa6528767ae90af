# diagd: `make help` lists what there is to make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PROTO_VENV := .venv-proto
PROTO_PYTHON := $(PROTO_VENV)/bin/python
PROTO_BASE := proto/base.binpb
PYTEST_ARGS ?=
PROTO_SOURCES := $(shell find proto/diagd -name '*.proto')
NATIVE_SOURCES := $(wildcard cuda_ext/diagd/cuda_ext/*.[ch]) $(wildcard probes/diagd/probes/native/*.[ch])
CUDA_SOURCES := $(shell find cuda_ext -name '*.cu')
NVCC := $(shell command -v nvcc 2>/dev/null)

# One thread a process: a few ranks on a small machine otherwise spend their time getting in each other's way.
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help setup demo check lint types layers proto proto-check proto-base cuda-check format test bench bench-faults bench-healthy clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.installed ## make .venv with diagd (editable) and what development needs

# torch goes first and by its exact version: some machines have a build of just that one at hand.
$(VENV)/.installed: pyproject.toml requirements-dev.txt cuda_ext/hatch_build.py $(NATIVE_SOURCES)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing torch and the development tools into $(VENV): some minutes, most of them torch's"
	@$(BIN)/python -m pip install --quiet "$$(sed -n 's/^\(torch==[^ ]*\).*/\1/p' requirements-dev.txt)"
	@$(BIN)/python -m pip install --quiet -e . -r requirements-dev.txt
	@touch $@

$(PROTO_VENV)/.installed: proto/requirements.txt
	@test -x $(PROTO_PYTHON) || $(PYTHON) -m venv $(PROTO_VENV)
	@echo "installing the pinned protobuf tools into $(PROTO_VENV)"
	@$(PROTO_PYTHON) -m pip install --quiet -r proto/requirements.txt
	@touch $@

demo: setup ## watch diagd find the fault in a real job of 3 ranks
	@sh deploy/demo/run.sh

check: lint types layers proto-check cuda-check ## all that is checked without running diagd

lint: setup ## style and common mistakes
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: setup ## mypy, strict
	$(BIN)/mypy

layers: setup ## who may import whom
	$(BIN)/lint-imports

proto: $(PROTO_VENV)/.installed ## generate the code of the .proto files anew
	@$(PROTO_PYTHON) proto/generate.py

proto-check: setup $(PROTO_VENV)/.installed ## the generated code is up to date, the messages are sound and compatible
	$(PROTO_PYTHON) proto/generate.py --check
ifeq ($(PROTO_SOURCES),)
	@echo "no .proto file yet: nothing for buf to check"
else
	$(BIN)/buf lint
ifeq ($(wildcard $(PROTO_BASE)),)
	@echo "no $(PROTO_BASE) yet: breaking changes are not looked for (make proto-base)"
else
	$(BIN)/buf breaking --against $(PROTO_BASE)
endif
endif

proto-base: setup ## take the messages as they are as what later ones must stay compatible with
	$(BIN)/buf build -o $(PROTO_BASE)

cuda-check: # compiles the device code where there is a compiler for it
ifneq ($(and $(NVCC),$(CUDA_SOURCES)),)
	@for source in $(CUDA_SOURCES); do \
		echo "nvcc $$source"; $(NVCC) -Werror all-warnings -c "$$source" -o $(VENV)/cuda-check.o || exit 1; done
	@$(PYTHON) cuda_ext/make_ptx.py --check
endif

format: setup ## put the code into the house's format
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

test: setup ## all tests; PYTEST_ARGS="-k hang" for some
	@$(BIN)/python -m pytest $(PYTEST_ARGS) || { code=$$?; \
		if [ $$code -eq 5 ]; then echo "no test was found, which counts as a failure" >&2; fi; exit $$code; }

bench: setup ## measure what diagd costs and how fast it is
	@$(BIN)/python -m tests.bench

bench-faults: setup ## the wide matrix of faults on real jobs (long)
	@$(BIN)/python -m tests.bench.faults

bench-healthy: setup ## trainings in which nothing is wrong, and what is said of them (some minutes)
	@$(BIN)/python -m tests.bench.healthy

clean: ## remove what was installed and generated here, but nothing that is committed
	rm -rf $(VENV) $(PROTO_VENV) cuda_ext/diagd/cuda_ext/_digest.so probes/diagd/probes/native/_native.abi3.so .demo .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
