# Each target makes .venv first, so that a fresh machine with a Python from 3.11 on needs nothing else.
# tools/find_python.sh looks for it; PYTHON=/path/to/python3 names one instead.
PYTHON ?=
VENV ?= .venv
BIN := $(VENV)/bin
OUT ?= demo-output

.PHONY: demo test check lint format types imports structure install lab clean

# One environment, and a stamp for what it holds: what the demo needs, all extras, or those and the development tools.
# Each set holds the one before, so that its recipe renews the stamps of those too.
PACKAGE := pyproject.toml setup.py constraints.txt $(wildcard dlrover_nb/core/runtime/kernels/*.[ch])
PIP := $(BIN)/python tools/pip_progress.py $(VENV)/pip.log
STAMP := $(VENV)/.installed-

install: $(STAMP)dev

HELD :=
$(STAMP)demo: EXTRAS := ray,torch
$(STAMP)all: EXTRAS := all
$(STAMP)dev: EXTRAS := all,dev
$(STAMP)all: HELD := demo
$(STAMP)dev: HELD := demo all

$(STAMP)demo $(STAMP)all $(STAMP)dev: $(PACKAGE) | $(BIN)/python
	@echo "installing dlrover-nb[$(EXTRAS)] into $(VENV)"
	@$(BIN)/python -m pip install --quiet --upgrade pip
	@$(PIP) install --no-compile -c constraints.txt -e ".[$(EXTRAS)]"
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true  # on all cores, where pip takes one; a few files are for no Python that runs
	@touch $(addprefix $(STAMP),$(HELD)) $@

$(BIN)/python:
	@rm -f $(BIN)/python*
	@python=$$(PYTHON="$(PYTHON)" tools/find_python.sh) || exit 1; \
	echo "$$("$$python" --version) at $$python makes $(VENV)"; "$$python" -m venv $(VENV)

demo: $(STAMP)demo  ## the main job, end to end, on this machine: about two minutes
	$(BIN)/dlrover-nb demo --out $(OUT)

lab: $(STAMP)all  ## JupyterLab on the quick start
	@if [ "$$(id -u)" = 0 ]; then echo "you are root: JupyterLab runs with --allow-root, on loopback alone"; fi
	$(BIN)/jupyter lab --ip 127.0.0.1 $$([ "$$(id -u)" != 0 ] || echo --allow-root) notebooks/00_quickstart.ipynb

# Three tiers, by the marks in the tests' files; the same commit runs the same tests in the same order. A test that needs
# what this machine lacks is skipped with the reason; REQUIRE=kube,chromium,postgresql installs these where it may and
# fails where they are missing. More workers than cores: parts that wait for Ray and browsers leave theirs to the others.
# With four, Ray at times needs more than the 30 s that it gives itself to start.
WORKERS ?= 3
REQUIRE ?=
COMMA := ,
INSTALLS := $(patsubst chromium,browser,$(filter chromium kube libraries postgresql promtool,$(subst $(COMMA), ,$(REQUIRE))))
TESTS := env -u PYTHONDONTWRITEBYTECODE -u VIRTUAL_ENV DLROVER_NB_REQUIRE="$(REQUIRE)" \
  $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --run-failures-alone

# Both tiers in one run take less time than one after the other: the tests in pods, half an hour, mostly wait.
TIERS ?= 1
SELECTED_1 := -m "not more and not release" --hypothesis-profile same
SELECTED_2 := -m "not release" --hypothesis-profile fixed

test: install $(INSTALLS)  ## what every change must pass: checks, the cheap tests, and one real test of each seam; TIERS=2 for test-more too
	@$(TESTS) $(SELECTED_$(TIERS))

.PHONY: test-more test-all costs mutants
test-more: install $(INSTALLS)  ## what a submission must pass besides: the other unit tests, and real clusters and browsers
	@$(TESTS) -m "more and not release" --hypothesis-profile fixed

test-all: install $(INSTALLS)  ## everything; takes hours, and goes on where it was stopped
	@$(TESTS) --note-passes --resume

costs: install  ## what each test costs, anew in tests/suite/costs.tsv; TESTS_OF=tests/api for a part
	@rm -f build/costs.jsonl
	-@$(TESTS) --record-costs=build/costs.jsonl $(TESTS_OF)
	@PYTHONPATH=tests $(BIN)/python -m suite.costs build/costs.jsonl

mutants: install  ## how many small faults in core code the cheap tests notice; ONLY=core/sharding for one room, MORE=1 for more tests
	@$(BIN)/python tools/mutants.py --sample $(or $(SAMPLE),300) --seed $(or $(SEED),0) $(if $(ONLY),--only $(ONLY)) $(if $(MORE),--more)

# SEED=17 ONLY=0,3 replays one with some of its events, as the line of a failure says.
.PHONY: simulate
simulate: install  ## jobs among all kinds of faults on virtual time: SEEDS=1000 from FIRST=0 on; KIND=own, external, elastic, saving, brain or exchange
	@PYTHONPATH=tests $(BIN)/python -m simulation $(if $(KIND),--kind $(KIND)) \
	  $(if $(SEED),--seed $(SEED) $(if $(ONLY),--only $(ONLY)),--first $(or $(FIRST),0) --seeds $(or $(SEEDS),1000))

# The kernel is built anew for each sanitizer, apart from the one that is used, with setup.py's own flags. Reports go past
# pytest to the terminal, and fail the run. Python itself leaks at its end, so leaks are not looked for.
KERNEL_TESTS = $(shell grep -rlE "kernel_world|slab_world|runtime\.kernels|ParameterStore" tests/core/runtime --include='test_*.py')
THREAD_TESTS = $(filter %_threads.py %_cuts.py %_laws.py %_copies.py,$(KERNEL_TESTS))
SANITIZED = build/sanitized/$(@:sanitize-%=%)
SANITIZED_KERNEL = $(CURDIR)/$(SANITIZED)/dlrover_nb/core/runtime/kernels/_kernel.so
SANITIZED_TESTS = DLROVER_NB_KERNEL_LIBRARY=$(SANITIZED_KERNEL) \
  DLROVER_NB_KERNEL= $(BIN)/python -m pytest --capture=sys -m "not release"
LIBRARY_OF_CC = $$(cc -print-file-name=$(1).so)
define sanitized_build
	@CFLAGS="-g -fno-omit-frame-pointer $(1)" LDFLAGS="$(1)" $(BIN)/python setup.py -q build_ext \
	  --build-lib $(SANITIZED) --build-temp $(SANITIZED)/objects && test -f $(SANITIZED_KERNEL)
endef

.PHONY: sanitize sanitize-address sanitize-threads
sanitize: sanitize-address sanitize-threads  ## the compiled kernel's tests under ASan and UBSan, and those of its threads under TSan: minutes

sanitize-address: install
	$(call sanitized_build,-fsanitize=address$(COMMA)undefined$(COMMA)float-cast-overflow -fno-sanitize-recover=all)
	@LD_PRELOAD="$(call LIBRARY_OF_CC,libasan) $(call LIBRARY_OF_CC,libstdc++)" ASAN_OPTIONS=detect_leaks=0 \
	  UBSAN_OPTIONS=print_stacktrace=1 $(SANITIZED_TESTS) $(KERNEL_TESTS)

sanitize-threads: install
	$(call sanitized_build,-fsanitize=thread -Wno-tsan)
	@LD_PRELOAD="$(call LIBRARY_OF_CC,libtsan)" \
	  TSAN_OPTIONS="ignore_noninstrumented_modules=1 suppressions=$(CURDIR)/tools/tsan.supp" \
	  setarch -R env $(SANITIZED_TESTS) $(THREAD_TESTS)

check: lint types imports structure

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

types: install
	$(BIN)/mypy

imports: install
	$(BIN)/lint-imports

structure: install  ## figures of the code's structure; fails on an import cycle or a file over 600 lines
	$(BIN)/python tools/structure.py --check

# Each runs as its test runs it, one after the other: their speeds are measured.
.PHONY: notebooks
notebooks: install browser kube  ## the stored outputs of the notebooks anew; ONLY=02 for one of them
	DLROVER_NB_STORE_NOTEBOOKS=1 $(BIN)/python -m pytest tests/notebooks/test_notebooks.py \
	  -k "test_every_cell and ($(or $(ONLY),simulated or quick_start or own_model or kubernetes or policy_lab))"

.PHONY: docs
docs: install  ## the documentation as a site in build/site; a broken link or reference is an error
	@$(BIN)/python tools/docs_reference.py build/docs
	@$(BIN)/zensical build --config-file mkdocs.yml

.PHONY: browser
browser:  ## headless Chromium for the browser tests, where we may install it
	@command -v chromium >/dev/null 2>&1 || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	      chromium fonts-dejavu-core >/dev/null; \
	  else echo "chromium is not here: the browser tests will be skipped"; fi; }

.PHONY: postgresql
POSTGRESQL_CONF := /etc/postgresql-common/createcluster.d/dlrover-nb.conf
postgresql:  ## PostgreSQL's programs for the tests of the history; they start a server of their own
	@[ -n "$$DLROVER_NB_TEST_POSTGRESQL_URL" ] || command -v postgres >/dev/null 2>&1 || \
	  ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	    mkdir -p $(dir $(POSTGRESQL_CONF)) && echo "create_main_cluster = false" >$(POSTGRESQL_CONF); \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	      postgresql >/dev/null; status=$$?; rm -f $(POSTGRESQL_CONF); exit $$status; \
	  else echo "PostgreSQL is not here: half of the history's tests will be skipped"; fi; }

.PHONY: promtool
promtool:  ## the program that checks the alert rules, from Debian's package of Prometheus, which is not installed
	@command -v promtool >/dev/null 2>&1 || [ -x build/prometheus/usr/bin/promtool ] || { \
	  mkdir -p build/prometheus && cd build/prometheus && command -v apt-get >/dev/null 2>&1 && \
	  { apt-get download -qq prometheus || { apt-get update -qq && apt-get download -qq prometheus; }; } && \
	  dpkg -x prometheus_*.deb . && rm prometheus_*.deb; } || \
	  echo "promtool is not here: the tests of the alert rules will be skipped"

.PHONY: libraries
libraries: install  ## DeepCTR-Torch and FuxiCTR, whose models `elastic` takes, without what only their own training needs
	@$(BIN)/python -m pip install --quiet --no-deps deepctr-torch==0.3.0 fuxictr==2.3.10 && \
	  $(BIN)/python -m pip install --quiet -c constraints.txt tqdm scikit-learn polars h5py pyyaml || \
	  echo "DeepCTR-Torch and FuxiCTR are not here: the tests of their models will be skipped"

KUBE_CLUSTER := $(or $(DLROVER_NB_SHARED),../shared)/kube/install.sh
.PHONY: kube
kube:  ## the programs of the test cluster for the Kubernetes tests, where it lies beside this checkout
	@if [ -x $(KUBE_CLUSTER) ] && [ "$$(id -u)" = 0 ]; then $(KUBE_CLUSTER) >/dev/null; \
	elif [ -x $(KUBE_CLUSTER) ]; then echo "$(KUBE_CLUSTER) was left to you: without it the Kubernetes tests may be skipped"; \
	else echo "no test cluster beside this checkout: the Kubernetes tests will be skipped"; fi

# Apart from .venv: what resolves the constraints is no part of what they pin.
UV := build/uv
HEADER = \# The set that the tests run with, for every Python from 3.11.0 on: made by `make constraints`.

.PHONY: constraints
constraints:  ## constraints.txt anew from pyproject.toml, keeping pins that still hold; UPGRADE=1: the newest of all
	@test -x $(UV)/bin/uv || { $(BIN)/python -m venv $(UV) && $(UV)/bin/python -m pip install --quiet uv; }
	$(UV)/bin/uv pip compile --quiet --universal --python-version 3.11.0 --all-extras --no-header --no-annotate \
	  $(if $(UPGRADE),--upgrade) --output-file constraints.txt pyproject.toml
	@sed -i '1i $(HEADER)' constraints.txt

.PHONY: wheel
wheel: $(STAMP)dev  ## the wheel in dist/: for any Python 3 from 3.11 on
	rm -rf build/lib* build/bdist*
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

# Apart from .venv, as for the constraints. The wheel is built from the sdist, so that nothing is missing there.
RELEASE := build/release
.PHONY: release
release: | $(BIN)/python  ## sdist and wheel in dist/, as `twine check` wants them; REPOSITORY in setup.py says where the sources are
	@test -x $(RELEASE)/bin/twine || { $(BIN)/python -m venv $(RELEASE) && \
	  $(RELEASE)/bin/python -m pip install --quiet build twine; }
	rm -rf dist && $(RELEASE)/bin/python -m build --outdir dist . && $(RELEASE)/bin/twine check --strict dist/*

.PHONY: second-python
EXTRAS_THERE ?= notebook,kubernetes
second-python: $(STAMP)dev  ## the wheel and a part of the tests on another Python, where this machine has one
	$(BIN)/python tools/second_python.py $(EXTRAS_THERE)

clean:
	rm -rf $(VENV) build dist *.egg-info $(OUT)
