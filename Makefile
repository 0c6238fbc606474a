# The commands of this repository. The environment is .venv.
#
#   make                       build: the environment, with the native code compiled
#   make serve                 serve the built-in model  (MODEL=path PORT=8001 HOST=… choose others)
#   make test                  install what the tests need, then run them
#   make test-page             only the tests of the page /ui, in Chromium
#   make test-sillytavern      drive SillyTavern in Chromium; installs it first (426 MB)
#   make test-codex            run Codex; installs it first (404 MB)
#   make test-claude-code      run Claude Code; installs it first (384 MB)
#   make test-aider            run Aider; installs it first (108 packages; Python before 3.13)
#   make test-llama-server     run llama.cpp's own tests of its server against this one; fetches them first (77 MB)
#   make test-ray              run replicas on Ray; installs it first (130 MB)
#   make test-gemma            only the tests with Gemma 3 270M, which it downloads (253 MB; its terms forbid passing it on);
#                              LLAMA_CPP_BIN=directory with llama.cpp's programs, to compare with
#   make soak                  measure the server under abuse (an hour; TOPICS='abort drain' selects; two topics need
#                              root, nginx-light and haproxy)
#   make sanitize              native code under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer (over an hour)
#   make image-test            build the container image and run it, as root; installs buildah and podman where missing
#   make gpu-carry             compile what a machine with an NVIDIA GPU needs: build/gpu-carry.tar.xz, which goes there with
#                              the checkout (GPU_PYTHON=python3.12: a Python as it has, with headers)
#   make gpu-check             on that machine, with its own Python packages and no network: test and measure the CUDA
#                              engine (8 minutes; GPU=second, families, knobs, rivals or train: the others)
#   make gpu-rehearsal         run all those commands here, on the emulator (half an hour)
#   make check                 format, lint, types, API contract, import directions, version
#   make audit                 known vulnerabilities of the installed packages; queries a service on the internet
#   make format · bench · openapi · clean
#
#   make wheels                wheels for Python 3.11 and for 3.12 and later, on x86-64 and arm64, checked; Debian (scripts/wheels.py)
#
# PYTHON=python3.12            another interpreter (>= 3.11)
# CUDA=1                       install torch, for an NVIDIA GPU; the default if nvidia-smi lists one, CUDA=0 leaves it out
# TORCH='…'                    arguments of a first `pip install`, for another build of torch than pip's default

SHELL := /bin/bash
.DEFAULT_GOAL := build
.DELETE_ON_ERROR:
.PHONY: build serve test test-page test-sillytavern test-codex test-claude-code test-aider test-llama-server test-ray test-gemma soak sanitize image-test gpu-carry gpu-check gpu-rehearsal check audit format bench openapi wheels clean

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
    $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
TORCH ?=
ifeq ($(filter 0 1,$(CUDA)),)
CUDA := $(shell nvidia-smi -L >/dev/null 2>&1 && echo 1 || echo 0)
endif
MODEL ?=
HOST ?=
PORT ?=
TOPICS ?=
GPU ?=
GPU_PYTHON ?= python3.12

BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
NATIVE := $(shell find csrc -type f)
BUILT_FROM := pyproject.toml CMakeLists.txt $(NATIVE)
CPP := $(filter %.cpp %.h %.cu %.cuh,$(NATIVE))

# A stamp means that the environment is ready for a command. A new dependency or new native code makes it
# stale; otherwise no command runs pip.
SERVE := .venv/serve$(if $(filter 1,$(CUDA)),-cuda).stamp
TEST := .venv/test.stamp
CHECK := .venv/check.stamp
# An environment like that of a machine with a GPU: for compiling, and with the packages that a rehearsal runs with.
GPU_BIN := build/gpu-env/bin
GPU_BUILD := build/gpu-env/build.stamp
GPU_BARE := build/gpu-env/bare.stamp
GPU_PACKAGES := 'torch>=2.10,<2.14' transformers safetensors tokenizers numpy jinja2 tqdm matplotlib hypothesis pytest \
    pytest-xdist pytest-timeout
NODE := tests/node/node_modules/.stamp
CLIENTS := tests/clients/.venv/.stamp
PAGES := tests/pages/.stamp
RAY := tests/ray/.venv/.stamp
SILLYTAVERN := tests/sillytavern/node_modules/.stamp
CODEX := tests/codex/node_modules/.stamp
AIDER := tests/aider/.venv/.stamp
CLAUDE_CODE := tests/claude_code/node_modules/.stamp

build: $(SERVE)

serve: $(SERVE)
	@exec $(BIN)/soliton serve $(if $(MODEL),'$(MODEL)') $(if $(HOST),--host $(HOST)) $(if $(PORT),--port $(PORT))

# Compiled Python is kept even if the user's environment says otherwise: the tests start hundreds of
# processes, and each would compile the packages and rewrite the assertions again. A process that dies
# is not replaced: pytest-xdist would give the new one the files that are done, and wait for ever.
test: export PYTHONDONTWRITEBYTECODE =
test: $(TEST) $(NODE) $(CLIENTS) $(PAGES)
	$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder --max-worker-restart 0

test-page: $(TEST) $(NODE) $(CLIENTS)
	$(BIN)/python -m pytest tests/page

test-sillytavern: $(TEST) $(CLIENTS) $(SILLYTAVERN)
	SILLYTAVERN=1 $(BIN)/python -m pytest tests/server/api/test_sillytavern.py

test-codex: $(TEST) $(CODEX)
	CODEX=1 $(BIN)/python -m pytest tests/server/api/test_codex.py

test-claude-code: $(TEST) $(CLAUDE_CODE)
	CLAUDE_CODE=1 $(BIN)/python -m pytest tests/server/api/test_claude_code.py

test-aider: $(TEST) $(AIDER)
	AIDER=1 $(BIN)/python -m pytest tests/server/api/test_aider.py

test-llama-server: $(TEST)
	$(BIN)/python scripts/llama_server_tests.py

test-ray: $(TEST) $(RAY)
	$(BIN)/python -m pytest tests/server/cluster

test-gemma: $(TEST)
	export GEMMA_GGUF="$$($(BIN)/python scripts/gemma.py)" && [ -f "$$GEMMA_GGUF" ] \
	    && $(BIN)/python -m pytest tests/engine/model/test_gemma_270m.py

soak: $(TEST)
	$(BIN)/python -m tests.soak $(TOPICS)

sanitize: $(TEST)
	$(BIN)/python scripts/sanitize.py

image-test: $(TEST)
	$(BIN)/python scripts/image_test.py

gpu-carry: $(GPU_BUILD)
	$(GPU_BIN)/python scripts/gpu_carry.py

gpu-check:
	$(PYTHON) scripts/gpu_check.py $(GPU)

gpu-rehearsal: $(GPU_BARE)
	$(GPU_BIN)/python scripts/gpu_carry.py --emulated
	$(GPU_BIN)/python scripts/gpu_rehearse.py $(GPU)

check: $(CHECK)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(CPP)
	$(BIN)/python scripts/openapi.py --check
	$(BIN)/python -m pytest -q tests/repository/test_layers.py tests/repository/test_imports.py tests/repository/test_version.py
	$(BIN)/hadolint docker/Dockerfile*

# osv, not pip-audit's default service: that one only warns about packages it cannot look up, so without a network
# everything would pass.
audit: $(SERVE)
	$(PIP) 'pip-audit>=2.10'
	$(BIN)/pip-audit --vulnerability-service osv --skip-editable

format: $(CHECK)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/clang-format -i $(CPP)

bench: $(SERVE)
	$(BIN)/soliton bench $(if $(MODEL),'$(MODEL)')

openapi: $(TEST)
	$(BIN)/python scripts/api_examples.py
	$(BIN)/python scripts/openapi.py
	$(BIN)/python scripts/request_fields.py
	$(BIN)/python scripts/openai_differences.py

wheels:
	@scripts/packages.sh "$(PYTHON)"
	$(PYTHON) scripts/wheels.py

clean:
	rm -rf .venv build dist tests/node/node_modules tests/clients/.venv tests/ray/.venv tests/aider/.venv tests/pages/node_modules tests/pages/*.html $(PAGES) \
	    .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info

.venv/venv.stamp:
	@scripts/packages.sh "$(PYTHON)"
	@mkdir -p .venv
	@touch $@

export TORCH
install = scripts/install.sh "$(PYTHON)"

$(SERVE): .venv/venv.stamp $(BUILT_FROM)
	@$(install) $(if $(filter 1,$(CUDA)),cuda)
	@touch $@

$(TEST): .venv/venv.stamp $(BUILT_FROM)
	@$(install) test
	@touch $(SERVE) $@

# mypy reads what the tests import, so it needs both extras.
$(CHECK): .venv/venv.stamp $(BUILT_FROM)
	@$(install) test check
	@touch $(SERVE) $(TEST) $@

$(GPU_BUILD):
	$(GPU_PYTHON) -m venv build/gpu-env
	$(GPU_BIN)/python -m pip install --quiet nanobind cmake ninja
	@touch $@

$(GPU_BARE): $(GPU_BUILD)
	$(GPU_BIN)/python -m pip install --quiet $(GPU_PACKAGES)
	@touch $@

$(NODE): tests/node/package.json
	@scripts/packages.sh "$(PYTHON)" node
	npm install --no-package-lock --no-audit --no-fund --loglevel=error --prefix tests/node
	@touch $@

$(SILLYTAVERN): tests/sillytavern/package.json
$(CODEX): tests/codex/package.json
$(CLAUDE_CODE): tests/claude_code/package.json
$(SILLYTAVERN) $(CODEX) $(CLAUDE_CODE):
	@scripts/packages.sh "$(PYTHON)" node
	npm install --no-package-lock --no-audit --no-fund --loglevel=error --prefix $(<D)
	@touch $@

# Without these pages their tests are skipped, so a registry that cannot be had does not end the tests.
$(PAGES): tests/pages/package.json scripts/pages.py | $(TEST) $(NODE)
	@echo "installing other people's pages into tests/pages (42 MB to download, 8 MB on disk)"
	@$(BIN)/python scripts/pages.py && touch $@ || true

# The clients need other versions of some shared packages than the tests. They use the packages of .venv, and their own
# if those do not fit. Most of their modules are never imported, so nothing is compiled ahead.
$(CLIENTS): tests/clients/requirements.txt .venv/venv.stamp | $(TEST)
	@scripts/packages.sh "$(PYTHON)" chromium
	@echo 'installing the clients into tests/clients/.venv (a minute or two)'
	@scripts/beside.sh $(@D) $< --no-compile
	@touch $@

$(AIDER): tests/aider/requirements.txt .venv/venv.stamp | $(TEST)
	@echo 'installing Aider into tests/aider/.venv (a minute or two)'
	@scripts/beside.sh $(@D) $< --no-compile
	@touch $@

# Without Ray its tests are skipped: it has no wheels for some Pythons and machines. The environment is its own, because
# Ray brings packages that change how uvicorn serves. They are compiled: each of Ray's processes imports most of them.
$(RAY): tests/ray/requirements.txt .venv/venv.stamp | $(TEST)
	@echo 'installing Ray into tests/ray/.venv (130 MB to download, 350 MB on disk)'
	@scripts/beside.sh $(@D) $<
	@touch $@
