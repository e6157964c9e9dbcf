# make demo    everything from nothing: venv, model, daemon, one streamed answer, status, stop
# make test    the suite            make check   linters, types, import contracts, GPU kernels, manuals
# make slow    the long tests
# make binary  dist/pagedd: one executable file for this version of Python, with all but torch
# make gpu-check           tests and measurements on a CUDA device; DRY=1: on the CPU, to try it.
#                          VENV= PYTHON=python3 takes a Python that has torch for CUDA already.
PYTHON ?= python3
VENV ?= .venv
BINARY ?= dist/pagedd
BIN := $(VENV)/bin
# Several versions of torch fit; the pinned one is the small CPU build where no GPU is meant.
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: demo test check slow binary gpu-check clean
.DELETE_ON_ERROR:

# torch first: an open range would bring a CUDA build of several gigabytes
$(VENV)/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "pagedd needs Python 3.11 or newer")'
	@echo 'making $(VENV) with torch and the rest: this takes a few minutes'
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install "$$(grep ^torch== constraints.txt)"
	@$(PIP) install --constraint constraints.txt --editable . $$($(BIN)/python -c 'import tomllib; \
	  print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["dev"])')
	@touch $@

demo: $(VENV)/ready
	@set -e; dir=$$(mktemp -d); export PAGEDD_URL=unix:$$dir/pagedd.sock PATH=$(abspath $(BIN)):$$PATH; \
	run() { printf '\n$$ %s\n' "$$*"; "$$@"; }; \
	run pagedd pull smollm2-135m-instruct; \
	run pagedd start --detach --socket $$dir/pagedd.sock --listen off --http off --log-file $$dir/log; \
	trap 'run pagedd stop; rm -rf $$dir' EXIT; \
	run pagedd generate --max-tokens 160 --temperature 0 'Why is the sky blue? Answer in two sentences.'; echo; \
	run pagedd status

test: $(VENV)/ready
	$(BIN)/pagedd pull smollm2-135m-instruct
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

slow: $(VENV)/ready
	$(BIN)/python -m pytest -m slow --timeout 0

# The one file takes the newest releases that fit, like an installation. The compiled parts are for
# one minor version of Python, so the file asks for it; and it boots from its cache without a detour,
# because what it unpacks then depends on nothing else. Of pex's two resolvers, the one that knows
# extras.
binary: $(VENV)/ready
	mkdir -p $(dir $(BINARY))
	$(BIN)/pex . --constraints constraints.txt --use-pip-config \
	  --resolver-version pip-2020-resolver --python-path $(abspath $(BIN)) \
	  --interpreter-constraint "$$($(BIN)/python -c 'import sys; print("CPython==%d.%d.*" % sys.version_info[:2])')" \
	  --venv prepend --sh-boot --inherit-path=fallback --compile \
	  --exclude torch --exclude triton --exclude transformers \
	  --preamble-file scripts/binary_preamble.py --entry-point pagedd.cli.main:main \
	  --output-file $(BINARY)
	@ls -l $(BINARY)

gpu-check: $(if $(strip $(VENV)),$(VENV)/ready)
	PYTHONPATH=$(CURDIR):$(CURDIR)/kernels $(if $(strip $(VENV)),$(BIN)/python,$(PYTHON)) -m tests.gpu.check $(if $(DRY),--dry)

check: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@if $(BIN)/python -c 'import triton' 2>/dev/null; then $(BIN)/python -m pagedd_kernels.aot --quiet; \
	  else echo 'Triton is not installed: the GPU kernels are not compiled'; fi
	@if command -v mandoc >/dev/null; then mandoc -T lint -W warning man/*.[157]; \
	  else echo 'mandoc is not installed: the manuals are not linted'; fi

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
