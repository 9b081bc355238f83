# Everything works with nothing but Python 3.11 or later and make: `make help` lists the targets.
PYTHON ?= python3
JOBS ?= 3
PYTEST_FLAGS ?=
LOCK_FLAGS ?=
PEERS ?= 1

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PEERS_VENV := benchmarks/.venv-peers
PEERS_INSTALLED := $(PEERS_VENV)/.installed
REJAX_VENV := benchmarks/.venv-rejax
REJAX_INSTALLED := $(REJAX_VENV)/.installed
RLBERRY_VENV := benchmarks/.venv-rlberry
RLBERRY_INSTALLED := $(RLBERRY_VENV)/.installed
RLLIB_VENV := benchmarks/.venv-rllib
RLLIB_INSTALLED := $(RLLIB_VENV)/.installed
LOCK_VENV := .cache/lock

# Tests start hundreds of processes, and without kept bytecode each would compile what it imports anew: it is kept even
# where the machine asks for none.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo test quick lint docs wheel bench peers agreement slow-env lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(INSTALLED) ## make .venv with the locked packages and this one, editable

$(INSTALLED): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or later is needed; try: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "Installing the locked packages into $(VENV): a minute or two, once."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(INSTALLED) ## solve a combination lock with PC-PG, four seeds, into runs/demo with its report.html
	rm -rf runs/demo
	$(BIN)/pcpg train CombinationLock-v0 --env.horizon 5 --algo pcpg --seeds 4 --out runs/demo
	$(BIN)/pcpg report runs/demo

lint: $(INSTALLED) ## ruff and basedpyright
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright --pythonpath $(BIN)/python

# Compiled programs are native code: the workers share a cache that is this clone's own and nobody else's.
test quick: export JAX_COMPILATION_CACHE_DIR := $(CURDIR)/.cache/jax
test quick: export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS := 0
test quick bench: export OPENBLAS_NUM_THREADS := 1
test: $(INSTALLED) ## lint, the rules of the house and all tests that need no accelerator; PYTEST_FLAGS are passed on
	@mkdir -p .cache && mkdir -p -m 700 .cache/jax
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
	@$(BIN)/python -m tests.house
	@$(BIN)/basedpyright --pythonpath $(BIN)/python > .cache/types.log 2>&1 & types=$$!; \
	  $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder -m "not gpu" $(PYTEST_FLAGS); tests=$$?; \
	  wait $$types; types=$$?; tail -n 40 .cache/types.log; exit $$((tests | types))

quick: $(INSTALLED) ## the tests that take about three minutes together on two cores
	@mkdir -p .cache && mkdir -p -m 700 .cache/jax
	@$(BIN)/python -m tests.house
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder -m "not gpu and not slow" $(PYTEST_FLAGS)

docs: $(INSTALLED) ## the documentation, with warnings as errors, into docs/_build
	$(BIN)/python -m sphinx -W --keep-going docs docs/_build

PYTHONS ?= $(PYTHON)
wheel: $(INSTALLED) ## the wheel in a clean environment of each of PYTHONS, used from an empty folder
	$(BIN)/python -m tests.wheel $(PYTHONS)

bench: $(INSTALLED) $(if $(filter 1,$(PEERS)),$(PEERS_INSTALLED) $(REJAX_INSTALLED)) ## speed beside the peers'; PEERS=0 leaves them out
	$(BIN)/python benchmarks/run.py

peers: $(PEERS_INSTALLED) $(REJAX_INSTALLED) ## make the peers' own environments

benchmarks/.venv-%/.installed: benchmarks/peers/%.txt
	@test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

agreement: $(INSTALLED) $(RLBERRY_INSTALLED) ## regret of three learners beside rlberry's, into benchmarks/results
	$(BIN)/python benchmarks/agreement.py

slow-env: $(INSTALLED) $(PEERS_INSTALLED) $(RLLIB_INSTALLED) ## workers of a slow environment beside SB3's and RLlib's
	$(BIN)/python benchmarks/slow_env.py --sb3 $(PEERS_VENV)/bin/python --rllib $(RLLIB_VENV)/bin/python

# gymnax has a file of its own: it allows no jax as new as the others may have.
EXTRAS := atari dmc robotics minigrid bsuite tensorboard wandb minari onnx video ray tune docs dev
LOCK = $(LOCK_VENV)/bin/uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-config \
  --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" --quiet $(LOCK_FLAGS)
lock: ## resolve the lock files anew where pyproject.toml asks for it; LOCK_FLAGS=--upgrade for the newest
	@test -x $(LOCK_VENV)/bin/uv || { $(PYTHON) -m venv $(LOCK_VENV) && \
	  $(LOCK_VENV)/bin/python -m pip install --quiet --disable-pip-version-check 'uv>=0.9,<1'; }
	$(LOCK) --extra dev --output-file requirements.lock
	$(LOCK) $(addprefix --extra ,$(EXTRAS)) --constraint requirements.lock --output-file requirements-extras.lock
	$(LOCK) --extra gymnax --output-file requirements-gymnax.lock
	$(foreach name,peers rejax rlberry rllib,$(subst pyproject.toml,benchmarks/peers/$(name).in,$(LOCK)) \
	  --output-file benchmarks/peers/$(name).txt &&) true

clean: ## remove environments and caches; runs/ and results/ stay
	rm -rf $(VENV) $(PEERS_VENV) $(REJAX_VENV) $(RLBERRY_VENV) $(RLLIB_VENV) .cache build dist docs/_build .hypothesis .pytest_cache .ruff_cache
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
