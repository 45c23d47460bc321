# Quorate: what people do with this repository. `make help` lists it.

SHELL := /bin/bash
# One folder for everything that is built, outside of the checkout: a second checkout builds fast.
export CARGO_TARGET_DIR ?= $(HOME)/.cache/quorate/target
QUORATE := $(CARGO_TARGET_DIR)/release/quorate

.PHONY: help deny staking sbom tools page page-types page-test build localnet observe test sim nightly fuzz mistakes coverage bench-verify bench-engines chaos bench bench-dashboard gate cryptography-off others experiments lint

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

tools: ## install missing build tools on Debian; elsewhere, list what to install
	@deploy/install-tools

build: tools page ## build the quorate binary (about 15 minutes the first time)
	cargo build --release --locked --workspace

# Made only if npm is there and something has changed; cargo embeds it, or a placeholder.
PAGE := explorer/page
page: ## build the explorer's web page, if npm is there
	@if ! command -v npm >/dev/null; then \
	  echo "npm is not there: the explorer serves a placeholder for its page"; \
	elif [ ! -f $(PAGE)/dist/index.html ] || [ -n "$$(find $(PAGE) -path $(PAGE)/node_modules -prune \
	    -o -path $(PAGE)/dist -prune -o -type f -newer $(PAGE)/dist/index.html -print -quit)" ]; then \
	  npm --prefix $(PAGE) ci --no-audit --no-fund && npm --prefix $(PAGE) run build || \
	    echo "the page was not built (it needs node 20.19 or newer): the explorer serves a placeholder"; \
	fi

page-types: ## generate the page's TypeScript types from the explorer's interface (needs npm, fetches a tool)
	cargo build --release --locked --workspace --example schemas
	$(CARGO_TARGET_DIR)/release/examples/schemas | node $(PAGE)/scripts/types.mjs

page-test: build ## test the explorer's page in headless Chromium on a local network (needs npm, chromium)
	npm --prefix $(PAGE) test
	npm --prefix $(PAGE) run -s e2e -- --binary $(QUORATE)

localnet: tools page ## run four validators with signed transfers for 30 seconds, and show a summary
	cargo build --release --locked --workspace --bin quorate
	$(QUORATE) localnet --for 30s

observe: build ## run a local network with Prometheus and live pages, until Ctrl-C (settings: deploy/observe)
	@deploy/install-tools prometheus
	@QUORATE=$(QUORATE) deploy/observe

test: page lint deny ## run the formatter check, clippy, dependency policy, all tests, and the simulator's budget
	@deploy/install-tools --try prometheus anvil
	.ci/tests
	$(MAKE) --no-print-directory gate
	$(MAKE) --no-print-directory sim

SIM := $(CARGO_TARGET_DIR)/release/quorate-sim

# A fixed budget: about nine minutes on two quiet cores; a slow machine runs fewer seeds.
sim: build ## run whole validators under injected faults in virtual time: seeds, twins, crash sweeps
	$(SIM) --seeds 0..1200 --minutes 3
	$(SIM) --protocol hotstuff-chained --seeds 0..120 --minutes 1
	$(SIM) --protocol hotstuff-basic --seeds 0..120 --minutes 1
	$(SIM) --protocol pbft --seeds 0..120 --minutes 1
	$(SIM) --application order-only --seeds 0..60 --minutes 0.5
	$(SIM) --application order-only --protocol hotstuff-chained --seeds 0..60 --minutes 0.5
	$(SIM) --twins 12000
	$(SIM) --protocol hotstuff-chained --twins 2500
	$(SIM) --protocol hotstuff-basic --twins 2500
	$(SIM) --protocol pbft --twins 2500
	$(SIM) --crash-sweep 4
	$(SIM) --borders 600
	$(SIM) --resharings 200

nightly: page lint ## run the long tests: kill storms, 10,000 damaged files, 10,000 seeds, every mistake, fuzzing
	@deploy/install-tools --try prometheus anvil
	QUORATE_NIGHTLY=1 cargo test --release --locked --workspace --no-fail-fast
	$(SIM) --seeds 0..10000
	$(SIM) --application order-only --seeds 0..3000
	for protocol in hotstuff-chained hotstuff-basic pbft; do \
	  $(SIM) --protocol $$protocol --seeds 0..2000 && \
	  $(SIM) --application order-only --protocol $$protocol --seeds 0..1000 && \
	  $(SIM) --protocol $$protocol --twins 100000 && \
	  $(SIM) --protocol $$protocol --crash-sweep 1 || exit 1; done
	$(SIM) --twins 1000000
	$(SIM) --crash-sweep 1
	$(SIM) --borders 10000
	$(SIM) --resharings 10000
	$(MAKE) --no-print-directory mistakes
	$(MAKE) --no-print-directory fuzz
	if command -v npm >/dev/null && command -v chromium >/dev/null; then $(MAKE) --no-print-directory page-test; fi

mistakes: tools ## apply each known mistake to a copy of the tree, and print how soon a checker notices it
	sim/mistakes/run

coverage: ## show which lines of the protocols no test of the engine runs (needs cargo-llvm-cov)
	consensus/coverage

FUZZ_SECONDS ?= 60

fuzz: tools ## fuzz every decoder of untrusted bytes and the consensus engine, FUZZ_SECONDS each
	rustup toolchain install nightly --profile minimal
	command -v cargo-fuzz >/dev/null || cargo install cargo-fuzz --locked --version 0.13.2
	set -e; for target in frame stored client signatures engine chunk; do \
	  cargo +nightly fuzz run -s none $$target -- -max_total_time=$(FUZZ_SECONDS) -max_len=4096; \
	done

BENCH := $(CARGO_TARGET_DIR)/release/quorate-bench

bench-verify: build ## compare one check with eager verification and commonware's calls
	$(BENCH) verify --json bench-verify.json
	$(BENCH) page bench-verify.json --out bench-verify.html

# The peer's program is a workspace of its own: some five minutes more the first time.
bench-engines: build ## compare this node with commonware's simplex: loopback, and WAN in virtual time
	cargo build --release --locked --manifest-path bench/peer/Cargo.toml
	$(BENCH) engines --transfers 0,2000 --json bench-engines.json
	$(BENCH) wan --json bench-wan.json
	$(BENCH) page bench-engines.json bench-wan.json --out bench-engines.html

others: build ## run other systems under the same load (needs Go; installs their programs the first time)
	cargo build --release --locked --manifest-path bench/peer/Cargo.toml
	$(BENCH) others --json bench-others.json

chaos: build ## run validators with invalid signatures, blocked and not: processes, virtual time, a page with curves
	$(BENCH) chaos --json bench-chaos.json --page bench-chaos.html

# The baseline's programs are built once for each commit. Its build leaves its own behind, hence the
# second build, which takes seconds.
bench: build ## run the continuous benchmark against a baseline, and append it to bench-history.jsonl
	baseline=$$(bench/build-baseline) && $(MAKE) --no-print-directory build && \
	  $(BENCH) suite --baseline $$baseline --baseline-commit $$(basename $$baseline)
	$(MAKE) --no-print-directory bench-dashboard

bench-dashboard: ## draw bench-history.jsonl as bench-dashboard.html
	$(BENCH) dashboard

# What is the same on every machine must not get worse: seconds, so every test run has it.
gate: build ## compare messages, bytes, checks, disk operations and virtual block time with the recorded ones
	$(BENCH) gate

# A program of another name beside the real one, which is put back at once.
cryptography-off: build ## build quorate-lab without signatures, for one experiment; it runs on chaos chains only
	cargo build --release --locked --workspace --bin quorate-lab --features quorate-crypto/cryptography-off
	cp $(QUORATE)-lab $(QUORATE)-lab-cryptography-off
	cargo build --release --locked --workspace --bin quorate-lab

experiments: cryptography-off ## run every experiment of bench/experiments, with a page each in experiment-results
	$(BENCH) experiment run bench/experiments/*.toml

# Without its features: it asks git for the advisories, and needs no TLS of its own.
DENY_VERSION := 0.20.2
CYCLONEDX_VERSION := 0.5.9

# The tool takes a few minutes to build, the first time.
deny: tools ## check dependencies: licences, banned crates, sources, advisories (deny.toml)
	[ "$$(cargo deny --version 2>/dev/null)" = "cargo-deny $(DENY_VERSION)" ] || \
	  cargo install cargo-deny --debug --locked --version $(DENY_VERSION) --no-default-features
	deploy/check-dependencies
	deploy/test-check-dependencies

staking: ## compile the staking contract (deploy/staking) into the committed bytecode (needs npm)
	@deploy/install-tools anvil
	npm --prefix deploy/staking run -s build

sbom: tools ## write quorate.cdx.json, a bill of materials of the program (CycloneDX)
	[ "$$(cargo cyclonedx --version 2>/dev/null)" = "cargo-cyclonedx-cyclonedx $(CYCLONEDX_VERSION)" ] || \
	  cargo install cargo-cyclonedx --locked --version $(CYCLONEDX_VERSION)
	deploy/sbom quorate.cdx.json

lint: tools ## run the formatter check and clippy
	cargo fmt --all --check
	cargo clippy --release --locked --workspace --all-targets -- -D warnings
