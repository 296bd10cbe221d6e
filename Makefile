# Usage: make [target]. Every target first installs what it needs (scripts/bootstrap).
#
#   make               release build; the program is build/stemma
#   make run           build it, serve a model, show what is reused  MODEL=file.gguf PORT=8080 ARGS=--once
#                      GPU=1: on a GPU; llama.cpp's library for it is fetched or compiled first
#   make test          checked build and all tests
#   make bench         build it and run its benchmarks            make bench ARGS="--help"
#   make test-agents   coding agents from npm over a scripted model; needs the network once  ARGS="codex claude"
#   make bench-serve   the server end to end, on a generated model ARGS="--help"
#   make bench-gpu     time to the first token on a GPU           MODEL=file.gguf ARGS="--help"
#   make train-model   train the models of models/ anew; needs a GPU with PyTorch (models/README.md)
#   make asan | tsan   all tests under sanitizers                 (scripts/sanitize: the part that CI runs)
#   make check-long    everything that .ci/run leaves out: hours
#   make soak          random runs for a long time, each of SOAK  SECONDS=3600 SOAK=oracle_test
#   make fuzz          every fuzz target for a while              SECONDS=60
#   make mutants       plant known bugs; the tests must find them ONLY=name
#   make coverage      line coverage under build-coverage/report
#   make format | format-check | lint                             lint: ALL=1 for every file
#   make headers       compile each public header alone
#   make valgrind      memcheck over the C program, unit tests and scenarios
#   make install       after make; PREFIX=/usr/local
#   make package       Debian packages under build/packages
#   make docs          the guides as a site under build/docs, with a search box
#   make wheel         the Python wheel under build/wheels, installed into a fresh environment and tried
#   make test-engines  the plug-ins for vLLM, LMCache and SGLang, and stemma.torch, in these engines; needs PyPI
#   make abi-update    record the C ABI as it is now, in tests/package/abi*.txt
#   make clean         remove all build folders
SHELL := /bin/bash
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(JOBS)
ARGS ?=
MODEL ?=
PORT ?= 8080
GPU ?=
PREFIX ?= /usr/local
SOAK ?= model_test oracle_test sequence_schedules_test server_test tiers_test \
        $(if $(wildcard .deps/llama-*),llama_test)
SOAK_PRESET ?= dev
# SECONDS is a variable of bash, so take it only from the command line.
SOAK_SECONDS := $(if $(filter command line,$(origin SECONDS)),$(SECONDS),3600)
FUZZ_SECONDS := $(if $(filter command line,$(origin SECONDS)),$(SECONDS),60)

.DEFAULT_GOAL := build
.PHONY: build run test test-agents bench bench-serve bench-gpu train-model asan tsan check-long soak fuzz mutants coverage format format-check lint headers \
        valgrind install package wheel docs test-engines abi-update clean

build:
	@scripts/bootstrap build llama
	@scripts/get-llama || echo "make: going on without llama.cpp"
	@cmake --workflow --preset release

run: build
	@$(if $(GPU),scripts/get-llama --gpu)
	@scripts/run --port '$(PORT)' --model '$(MODEL)' $(if $(GPU),--gpu) $(ARGS)

bench: build
	build/stemma bench $(ARGS)

bench-serve: build
	build/stemma bench serve $(ARGS)

bench-gpu: build
	@bench/gpu/run --stemma build/stemma --model '$(or $(MODEL),build/models/8b.gguf)' $(ARGS)

# The numbers of steps are those that the files in models/ were trained for.
TRAIN_OUT ?= build/trained
TRAIN_PYTHON ?= python3
train-model:
	@$(TRAIN_PYTHON) -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null || \
	  { echo "make train-model: this needs an NVIDIA GPU and a Python with PyTorch 2.6 or newer and NumPy;" \
	         "TRAIN_PYTHON=... names another Python" >&2; exit 1; }
	@$(TRAIN_PYTHON) models/train/train.py --out '$(TRAIN_OUT)' --models llama --steps 6423 --pool 200000000 $(ARGS)
	@$(TRAIN_PYTHON) models/train/train.py --out '$(TRAIN_OUT)' --models window,hybrid --steps 1682,2750 $(ARGS)

test-agents:
	@cmake --preset dev
	@cmake --build --preset dev --target scripted_server
	@tests/agents/run build-dev/scripted_server $(ARGS)

test:
	@scripts/bootstrap build llama serve-tests tier-tests python-tests docs
	@scripts/get-llama || echo "make: going on without llama.cpp"
	@cmake --workflow --preset dev

asan tsan:
	@scripts/bootstrap build llama serve-tests tier-tests python-tests docs
	@scripts/get-llama || echo "make: going on without llama.cpp"
	@cmake --workflow --preset $@

headers:
	@scripts/bootstrap build
	@cmake --preset dev >/dev/null
	@cmake --build --preset dev --target all_verify_interface_header_sets

check-long:
	@.ci/long

soak:
	@scripts/bootstrap build
	@cmake --preset $(SOAK_PRESET) >/dev/null
	@cmake --build --preset $(SOAK_PRESET) --target $(SOAK)
	for test in $(SOAK); do \
	  STEMMA_MODEL_SECONDS=$(SOAK_SECONDS) STEMMA_ORACLE_SECONDS=$(SOAK_SECONDS) \
	  STEMMA_SEQUENCE_SECONDS=$(SOAK_SECONDS) STEMMA_SERVER_SECONDS=$(SOAK_SECONDS) \
	  STEMMA_LLAMA_CONVERSATIONS=500 STEMMA_LLAMA_SEEDS=20 \
	  STEMMA_CRASH_ROUNDS=2000 STEMMA_POWER_ROUNDS=2000 \
	    build-$(SOAK_PRESET)/$$test $(ARGS) || exit; \
	done

fuzz:
	@scripts/bootstrap fuzz
	@scripts/fuzz --seconds $(FUZZ_SECONDS)

mutants:
	@scripts/bootstrap build
	@scripts/mutants $(if $(ONLY),--only $(ONLY)) $(ARGS)

coverage:
	@scripts/bootstrap coverage
	@cmake --workflow --preset coverage
	@mkdir -p build-coverage/report
	@gcovr --root . --filter 'src/' --filter 'include/' --exclude '.*_test\.cc' \
	  --html-details build-coverage/report/index.html --print-summary build-coverage

format:
	@scripts/bootstrap format
	@scripts/format

format-check:
	@scripts/bootstrap format
	@scripts/format --check

lint:
	@scripts/bootstrap lint
	@scripts/lint $(if $(ALL),--all)

valgrind:
	@scripts/bootstrap valgrind
	@cmake --preset dev >/dev/null
	@scripts/valgrind

package: build
	@cd build && cpack -G DEB >packages.log || { cat packages.log; exit 1; }
	@ls build/packages/*.deb

docs:
	@scripts/bootstrap docs
	@scripts/build-docs

wheel:
	@scripts/bootstrap build python-tests
	@scripts/wheel build/wheels

# `build` for the program: the tests look into directories with `stemma inspect`.
test-engines: build wheel
	@scripts/test-engines build/wheels

abi-update:
	@scripts/bootstrap build
	@cmake --preset dev >/dev/null
	@cmake --build --preset dev --target stemma_shared stemma_tiers_shared stemma_mover_shared
	@python3 tests/package/abi.py --library build-dev/libstemma.so --update
	@python3 tests/package/abi.py --library build-dev/libstemma_tiers.so --tiers --update
	@python3 tests/package/abi.py --library build-dev/libstemma_mover.so --mover --update

install:
	cmake --install build --prefix $(PREFIX)

clean:
	rm -rf build build-wheel build-engines build-torch build-torch-bench build-dev build-asan build-tsan build-tidy build-fuzz build-coverage build-mutants
