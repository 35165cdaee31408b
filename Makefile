# Scopeline's commands; `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help

VENV := .venv
PYTHON := $(VENV)/bin/python
READY := $(VENV)/.ready
UV = $(or $(shell command -v uv),.tools/bin/uv)
CONFIG ?= configs/digits.yaml
ARGS ?=
IMAGE ?=
EXTRA ?=
CONFIRM ?=

# Set-up runs again only if one of these files has changed.
$(READY): uv.lock pyproject.toml setup.py tools/setup.sh components/compat/older_linux.py
	@bash tools/setup.sh $(VENV)

.PHONY: help setup run wheel replay siege noise test test-all lint format docs site image bench bench-workers bench-wide bench-strategies bench-nights bench-pictures bench-peers bench-optimize bench-serving bench-tasks other-runner clean clean-output

help:  ## list these commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 26

setup: $(READY)  ## create .venv from uv.lock (the other commands do it by themselves)

run: $(READY)  ## run the main job; CONFIG=configs/taxi.yaml runs another, ARGS="..." adds options
	@$(PYTHON) local_runner.py run --config $(CONFIG) $(ARGS)

replay: $(READY)  ## play 30 days of scheduled retraining with a simulated clock; ARGS="--days 5"
	@$(PYTHON) tools/replay.py $(ARGS)

siege: $(READY)  ## test `serve` with hostile requests, kills and damaged versions; ARGS="--seed 7 --only huge_picture"
	@$(PYTHON) -m tools.siege $(ARGS)

noise: $(READY)  ## measure how often models of pure noise are pushed (an hour); ARGS="--tables 20 --kinds plain"
	@$(PYTHON) -m tools.noise $(ARGS)

test: $(READY)  ## run the fast tests (8 minutes on 2 cores); ARGS="-k name" selects tests
	@$(PYTHON) -m compileall -q -j 0 pipeline components trainer_module  # Tests start many processes.
	@$(PYTHON) -m pytest $(ARGS)

test-all: $(READY)  ## run all tests, the slow ones too (half an hour on 2 cores)
	@$(PYTHON) -m compileall -q -j 0 pipeline components trainer_module
	@$(PYTHON) -m pytest -m "slow or not slow" -rs $(ARGS)

lint: $(READY)  ## check style, types, layers, uses of other libraries' internals, and docstrings
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy
	@PYTHONPATH=. $(VENV)/bin/lint-imports
	@$(PYTHON) -m tools.foreign_insides
	@$(PYTHON) -m tools.plain_words

format: $(READY)  ## format the code
	@$(VENV)/bin/ruff check --fix-only --quiet .
	@$(VENV)/bin/ruff format .

docs: $(READY)  ## write the references of the config and the Python API from the code
	@$(PYTHON) tools/generate_docs.py

site: $(READY)  ## build the documentation as a site into site/; a dead link ends the build
	@$(PYTHON) tools/build_site.py

wheel: $(READY)  ## build the wheel, and the exact versions that it needs, in dist/
	@rm -rf build dist/scopeline-*.whl
	@$(UV) build --quiet --wheel
	@$(UV) export --quiet --locked --no-dev --no-emit-project --no-hashes --no-annotate --no-header \
	  --extra optimize --extra hub --extra control --output-file dist/requirements.txt
	@ls dist/scopeline-*.whl dist/requirements.txt

image: $(READY)  ## build the container image; IMAGE=example.com/scopeline:0.1.0 names it, EXTRA=gpu adds CUDA, ARGS=--push pushes it
	@$(PYTHON) tools/build_image.py $(IMAGE) $(if $(EXTRA),--extra $(EXTRA)) $(ARGS)

bench: $(READY)  ## measure against a stock TFX pipeline, side by side (minutes)
	@$(PYTHON) benchmarks/taxi.py $(ARGS)

bench-workers: $(READY)  ## compare data components in one process and in several; ARGS="--rows 300040"
	@$(PYTHON) -m benchmarks.costs.workers $(ARGS)

bench-wide: $(READY)  ## measure time and memory by the number of columns; ARGS="--columns 50 500 --format parquet"
	@$(PYTHON) -m benchmarks.costs.wide $(ARGS)

bench-strategies: $(READY)  ## measure the Trainer against plain Keras, and two workers against one
	@$(PYTHON) benchmarks/strategies.py $(ARGS)

bench-nights: $(READY)  ## time the commands of a pipeline after 1,000 nights; ARGS="--nights 100"
	@$(PYTHON) -m benchmarks.nights $(ARGS)

bench-pictures: $(READY)  ## measure the input of pictures against arrays in memory; ARGS="--side 128"
	@$(PYTHON) benchmarks/pictures.py $(ARGS)

bench-peers: $(READY)  ## measure the models of tables beside scikit-learn, YDF and AutoGluon (hours); ARGS="--only auto --seeds 1"
	@$(PYTHON) -m benchmarks.models $(ARGS)

bench-optimize: $(READY)  ## measure all variants of models against their SavedModels; ARGS="--pipelines digits"
	@$(PYTHON) -m benchmarks.optimize $(ARGS)

bench-serving: $(READY)  ## measure `serve` under load, against the bare model and with changing versions; ARGS="--changes 600"
	@$(PYTHON) benchmarks/serving.py $(ARGS)

bench-tasks: $(READY)  ## measure the tasks `control` and `generation`; ARGS="--seeds 1"
	@$(PYTHON) benchmarks/control.py $(ARGS)
	@$(PYTHON) benchmarks/generation.py $(ARGS)

other-runner: $(READY)  ## compare a run and predictions with those of Beam in another process; ARGS="--flink-jar FILE"
	@$(PYTHON) tools/other_runner.py $(ARGS)

clean:  ## remove the environment and caches; output/ stays
	rm -rf $(VENV) .tools build site .cache *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

clean-output:  ## delete output/ with its models and history after confirmation; CONFIRM=yes confirms
	@if [ ! -e output ]; then echo "There is no output/ here."; exit 0; fi; \
	if [ "$(CONFIRM)" != yes ]; then \
	  if [ ! -t 0 ]; then \
	    echo "output/ stays: there is no terminal for the confirmation; CONFIRM=yes deletes it." >&2; exit 2; \
	  fi; \
	  read -r -p "Delete output/ with all models, metadata and history in it? [y/N] " answer; \
	  case "$$answer" in [yY]|[yY]es) ;; *) echo "output/ stays."; exit 2;; esac; \
	fi; \
	rm -rf output
