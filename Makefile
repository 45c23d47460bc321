# Quorate: what people do with this repository. `make help` lists it.

SHELL := /bin/bash
# One folder for everything that is built, outside of the checkout: a second checkout builds fast.
export CARGO_TARGET_DIR ?= $(HOME)/.cache/quorate/target
QUORATE := $(CARGO_TARGET_DIR)/release/quorate

.PHONY: help tools build localnet test nightly lint

help: ## show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

tools: ## install what bare Debian lacks, or say what to install elsewhere
	@deploy/install-tools

build: tools ## build the quorate binary (about 15 minutes the first time)
	cargo build --release --locked --workspace

localnet: build ## run four validators with signed transfers for 30 seconds, and show a summary
	$(QUORATE) localnet --for 30s

test: lint ## formatter, clippy, and all tests of the first tier
	cargo test --release --locked --workspace --no-fail-fast

nightly: test ## the long runs beside
	QUORATE_NIGHTLY=1 cargo test --release --locked --workspace --no-fail-fast

lint: tools ## formatter and clippy
	cargo fmt --all --check
	cargo clippy --release --locked --workspace --all-targets -- -D warnings
