# `make run` starts the whole system on this machine. Three commands test it (CONTRIBUTING.md): `make check` the working
# tree's changes, `make test` every commit, `make test-all` a release. All install what is missing (see bin/bootstrap).

PYTHON := .venv/bin/python
# Where Python may not keep what it compiled, each of the many processes that we start would compile everything anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run check test test-all lint types bench bench-allocator chaos attacks fuzz fresh docs migrations screenshots wheel clean

run: .venv/.runtime
	@$(PYTHON) manage.py up $(ARGS)

# Format, lint, layers, types, and the quick tests that what differs from SINCE (the last commit) can affect.
check: .venv/.tests
	@bin/check $(if $(SINCE),--since $(SINCE))

# Everything that proves a commit, TEST_WORKERS parts of it at a time (tests/parts.py); what ARGS names, in one process.
# ORDER, any text, is the seed of a random order.
test: .venv/.tests
	@$(if $(ORDER),TEST_ORDER='$(ORDER)') bin/test $(ARGS)

# The same with whatever takes long, in full size.
test-all: .venv/.tests
	@TEST_ALL=1 $(if $(ORDER),TEST_ORDER='$(ORDER)') bin/test $(ARGS)

lint: .venv/.tests
	@.venv/bin/ruff format --check .
	@.venv/bin/ruff check .
	@.venv/bin/lint-imports
	@.venv/bin/djlint templates --check --lint --quiet || .venv/bin/djlint templates --check --lint
	@$(PYTHON) bin/format-css --check

types: .venv/.tests
	@.venv/bin/mypy

# Every benchmark; each has options of its own, for when it is run alone.
bench: .venv/.tests
	@for script in bench/*.py; do echo "== $$script"; $(PYTHON) $$script || exit 1; done

bench-allocator: .venv/.tests
	@$(PYTHON) bench/allocator.py $(ARGS)

# Everything goes wrong at random while clients work, and what must hold afterwards is checked (docs/evidence/reliability.md):
# with SEEDS, how many MINUTES each; before each, every process is killed while many clients create pods.
SEEDS ?= 1 2 3 4 5 6 7 8 9 10

chaos: .venv/.tests
	@for seed in $(SEEDS); do echo "== seed $$seed"; \
	$(PYTHON) bench/end_to_end.py --case chaos --seed $$seed || exit 1; \
	$(PYTHON) -m tests.chaos --minutes $(or $(MINUTES),2) --seed $$seed --keep var/chaos $(ARGS) || exit 1; done

# What one tenant can cost another (SECURITY.md): each attack in full size, SECONDS long, and what somebody else sees.
attacks: .venv/.tests
	@$(PYTHON) bench/end_to_end.py --case isolation --seconds $(or $(SECONDS),20) $(ARGS)

# Fuzz the expression language, MINUTES says for how long; then every property test with twenty times the examples; then
# the front door, REQUESTS of each kind (made of our OpenAPI; hostile ones; pages) by each sender on each database.
fuzz: .venv/.tests
	@$(PYTHON) -m tests.scheduling.cel.fuzz --minutes $(or $(MINUTES),10)
	@TEST_ALL=1 MANCIPLE_EXAMPLES=20 .venv/bin/pytest -q --ignore=tests/e2e --ignore=tests/security/fuzz -m hypothesis -o timeout=3600
	@$(PYTHON) -m tests.security.fuzz --requests $(or $(REQUESTS),5000) $(if $(SEED),--seed $(SEED))

# Clone what is committed into an empty directory and test it there.
fresh:
	@bin/fresh

# The generated parts of docs/reference (settings, commands), the files of manciple-agent, and the site in site/; a warning ends it.
docs: .venv/.tests .venv/.docs
	@$(PYTHON) -m tests.generated_docs
	@$(PYTHON) -m tests.distributions
	@.venv/bin/sphinx-build -q -W --keep-going -b html -c docs . site
	@echo "site/docs/index.html"

# Pictures of every page, from the demo data, into docs/screenshots.
screenshots: .venv/.tests
	@$(PYTHON) manage.py screenshots $(ARGS)

# The wheels of manciple and of manciple-agent, into dist/ (docs/how-to/installing.md).
wheel: .venv/.tests
	@$(PYTHON) -m hatchling build -t wheel -d dist
	@cd agent && ../$(PYTHON) -m hatchling build -t wheel -d ../dist

migrations: .venv/.tests
	@$(PYTHON) manage.py makemigrations

.venv/.runtime: pyproject.toml uv.lock bin/bootstrap
	@bin/bootstrap runtime

.venv/.tests: pyproject.toml uv.lock bin/bootstrap
	@bin/bootstrap tests

.venv/.docs: pyproject.toml uv.lock bin/bootstrap
	@bin/bootstrap docs

clean:
	rm -rf .venv site .mypy_cache .ruff_cache .pytest_cache .hypothesis
