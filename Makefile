# Everything starts here: `make help` lists the targets.

PYTHON ?= python3
VENV   ?= .venv
CONFIG ?= configs/agents/rl/push_cube/train_config_quickstart.json
# More arguments for `make train` (ARGS="trainer.seed=3"), for pytest under `make test` (ARGS="-m 'not learning'") or for
# `make bench` (ARGS="--task CartPoleRL --rounds 3").
ARGS   ?=
# The index that PyTorch is taken from; https://download.pytorch.org/whl/cpu has small builds without CUDA.
TORCH_INDEX ?=

BIN := $(VENV)/bin
# Compiling all modules takes longer than installing them: $(COMPILE) compiles what a training imports.
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --no-input --no-compile
# Only the files that `make lock` saw, nothing built from source. PyTorch is the exception: scripts/setup_torch.sh.
INSTALL_LOCKED := $(INSTALL) --require-hashes --no-deps --only-binary :all:
INSTALL_TORCH = sh scripts/setup_torch.sh $(BIN)/python $(TORCH_INDEX)
# Editors check configs by them; the wheel has them.
WRITE_SCHEMAS = mkdir -p configs/schema && for kind in $$($(BIN)/python -c "from embodichain.schema import SCHEMAS; print(*SCHEMAS)"); do \
	$(BIN)/python -m embodichain.cli schema --kind $$kind --out configs/schema/$$kind.schema.json || exit 1; done
# Built with the locked setuptools.
INSTALL_PACKAGE := $(INSTALL) --no-deps --no-build-isolation --no-index --editable .
# OpenGL may not be there yet.
COMPILE := env -u PYTHONDONTWRITEBYTECODE MUJOCO_GL=disable $(BIN)/python -c "import embodichain.agents.rl.train"

.DEFAULT_GOAL := help
.PHONY: help train test pytest bench check check-systems format schema docs setup setup-dev wheel sbom lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

train: setup ## Set up, then train PushCube with the quickstart config (CONFIG=..., ARGS=...)
	@sh scripts/setup_gl.sh $(BIN)/python
	$(BIN)/python -m embodichain.agents.rl.train --config $(CONFIG) $(ARGS)

test: setup-dev ## Set up, then lint, types and all tests side by side (ARGS=... goes to pytest)
	@$(MAKE) --no-print-directory -j2 check pytest

pytest: setup-dev
	@sh scripts/setup_gl.sh $(BIN)/python
	@sh scripts/run_tests.sh $(BIN)/python $(ARGS)

bench: setup ## Set up, then compare the training speed with other libraries, which it installs (ARGS=...)
	@sh scripts/setup_gl.sh $(BIN)/python
	$(INSTALL_LOCKED) --requirement requirements/bench.txt
	$(BIN)/python -m benchmarks.peers $(ARGS)

check: setup-dev ## Set up, then lint, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

check-systems: setup-dev ## Set up, then check the package's types for macOS and Windows
	$(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin embodichain
	$(BIN)/mypy --platform win32 --cache-dir .mypy_cache/win32 embodichain

format: setup-dev ## Format the code, and fix what the linter can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

schema: setup-dev ## Write the JSON Schemas of the configs, and the lists of docs/configuration.md, from the code
	$(WRITE_SCHEMAS)
	$(BIN)/python scripts/config_docs.py

docs: $(VENV)/.installed-docs ## Build the documentation site into site/; a warning or a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

setup: $(VENV)/.installed ## Create the virtual environment and install the locked versions

setup-dev: $(VENV)/.installed-dev ## The same with the development tools

# The stamps make a second call free. The development tools include everything that `make train` needs.
$(VENV)/.installed: pyproject.toml requirements/run.txt requirements/torch.txt
	@sh scripts/setup_venv.sh $(PYTHON) $(VENV)
	$(INSTALL_LOCKED) --requirement requirements/run.txt
	@$(INSTALL_TORCH)
	$(INSTALL_PACKAGE)
	@$(COMPILE)
	@touch $@

$(VENV)/.installed-dev: pyproject.toml requirements/run.txt requirements/torch.txt requirements/dev.txt
	@sh scripts/setup_venv.sh $(PYTHON) $(VENV)
	$(INSTALL_LOCKED) --requirement requirements/run.txt --requirement requirements/dev.txt
	@$(INSTALL_TORCH)
	$(INSTALL_PACKAGE)
	@$(COMPILE)
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-docs: $(VENV)/.installed requirements/docs.txt
	$(INSTALL_LOCKED) --requirement requirements/docs.txt
	@touch $@

wheel: setup ## Build the wheel into dist/: the package with the shipped configs, for an installation without the checkout
	rm -rf build
	$(WRITE_SCHEMAS)
	$(BIN)/python -m pip wheel --disable-pip-version-check --no-deps --no-build-isolation --no-index --wheel-dir dist .

sbom: setup ## Write sbom.cdx.json: the packages installed in the virtual environment, in the CycloneDX format
	@sh scripts/sbom.sh $(VENV)

lock: ## Resolve all versions again; write requirements.lock, requirements/ and THIRD_PARTY.md (needs Python 3.11, Linux)
	@sh scripts/lock.sh $(PYTHON)

clean: ## Remove the virtual environment and all caches; the runs in outputs/ stay
	rm -rf $(VENV) build dist site sbom.cdx.json *.egg-info .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
