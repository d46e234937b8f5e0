# The only commands one needs. Each makes .venv and installs what it needs.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RELEASE_VENV := .venv-release
ENGINES := vllm sglang llamacpp sim
DISTRIBUTIONS := . $(ENGINES:%=plugins/%)
PROJECTS := pyproject.toml $(ENGINES:%=plugins/%/pyproject.toml)

.PHONY: help dev demo test races check format bench bench-peers engines engines-vllm surfaces wheels release release-lock release-check clean

# Print this.
help:
	@awk '/^# / { said = substr($$0, 3) } /^[a-z][a-z-]*:/ { sub(":.*", ""); printf "make %-14s %s\n", $$0, said; said = "" }' Makefile

# Make .venv with everything to work on the project: then .venv/bin/python -m pytest tests/cli, and the like.
dev: $(VENV)/.developing

# Show the main job on real input.
demo: $(VENV)/.installed
	$(BIN)/python -m demo

# Most tests wait for processes: more files at a time than two cores, each in one process, the longest first.
test: $(VENV)/.developing
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

# The same while processes are paused and delayed at random: for whoever looks for a race.
races: $(VENV)/.developing
	$(BIN)/python tools/pauses.py $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

# Lint, types, layers.
check: $(VENV)/.developing
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.developing
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# Measure, in one run, as ratios.
bench: $(VENV)/.developing
	$(BIN)/python -m bench.engine_check
	$(BIN)/python -m bench.growth
	$(BIN)/python -m bench.planner
	$(BIN)/python -m bench.control_plane
	$(BIN)/python -m bench.replicas
	$(BIN)/python -m bench.gateway

# What the gateway is measured against, beside nginx: each in an environment of its own, 1 GB in .demo.
bench-peers:
	for each in vllm-router sglang-router 'litellm[proxy]'; do \
		peer=.demo/peers/$${each%%[*}; $(PYTHON) -m venv $$peer && $$peer/bin/python -m pip install --quiet "$$each"; done

# Run real engines: llama.cpp, prebuilt, on one node and over two.
engines: $(VENV)/.developing
	$(BIN)/python -m demo.llama_server
	$(BIN)/python -m pytest tests/engines

# Run a real vLLM on the CPU, on one node and over two: 3.4 GB in .demo, minutes, not in CI.
engines-vllm: $(VENV)/.developing
	$(BIN)/python -m demo.vllm_server
	LLMGW_VLLM=$(CURDIR)/.demo/vllm/bin/vllm $(BIN)/python -m pytest -s -o faulthandler_timeout=0 \
		tests/engines/test_vllm_replicas.py

# Record flag tables from real help texts: make surfaces HELP=DIRECTORY
surfaces: $(VENV)/.installed
	$(BIN)/python tools/make_surfaces.py $(HELP)

wheels: $(VENV)/.developing
	rm -rf dist
	for each in $(DISTRIBUTIONS); do $(BIN)/python -m build --outdir dist $$each || exit 1; done

# Everything that is released, from a clean commit under a tag: docs/how-to-release.md.
release: $(RELEASE_VENV)/.installed
	$(RELEASE_VENV)/bin/python -m tools.release

# Lock anew what a release bundles, and what makes it.
release-lock: $(VENV)/.developing
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m tools.release.lock

# Two releases in two places have the same bytes, and the files run: minutes, network, root for the bare trees.
release-check: $(VENV)/.developing
	LLMGW_RELEASE_CHECK=1 $(BIN)/python -m pytest -s -o faulthandler_timeout=0 tests/release

clean:
	rm -rf $(VENV) $(RELEASE_VENV) .demo dist build

# Its tools are locked, and apart from those that developers use.
$(RELEASE_VENV)/.installed: requirements-release.txt
	rm -rf $(RELEASE_VENV)
	$(PYTHON) -m venv $(RELEASE_VENV)
	$(RELEASE_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $<
	touch $@

$(VENV)/.installed: $(PROJECTS)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "llmgw needs Python 3.11 or newer: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(DISTRIBUTIONS:%=--editable %)
	$(BIN)/python -m compileall -q src $(ENGINES:%=plugins/%/src) # as pip does for wheels: a command starts quicker
	touch $@

$(VENV)/.developing: $(VENV)/.installed requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements-dev.txt
	touch $@
