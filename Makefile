# SPDX-License-Identifier: Apache-2.0
# The two commands of the README are `make test` and `make demo`; both set up what they need on a machine with rustup, Go and a C compiler.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help

TOOLCHAIN := $(shell sed -n 's/^channel *= *"\(.*\)"/\1/p' rust-toolchain.toml)
WASM_TARGET := wasm32-unknown-unknown
# CI must build what is locked; a developer may be about to change it.
LOCKED := $(if $(CI),--locked,)
# Two suites at a time: each has a control plane of its own, and the machine has two cores.
SUITE_THREADS := 2
BIN := $(CURDIR)/target/debug

.PHONY: help setup controlplane build check unit suites policies example-policies test demo bench bench-policy golden deny

help: ## Lists the targets.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: ## Installs the pinned toolchain and the wasm target where they are missing.
	@command -v rustup >/dev/null || { echo "rustup is missing: install it, then run make again" >&2; exit 1; }
	rustup run $(TOOLCHAIN) rustc --version >/dev/null 2>&1 || rustup toolchain install $(TOOLCHAIN) --profile minimal --component clippy --component rustfmt
	rustup target list --installed --toolchain $(TOOLCHAIN) | grep -qx $(WASM_TARGET) || rustup target add --toolchain $(TOOLCHAIN) $(WASM_TARGET)

controlplane: ## Builds etcd, kube-apiserver, kube-controller-manager and kubectl once, unless KUBEBUILDER_ASSETS has them.
	@sh tests/controlplane/build.sh >/dev/null

check: setup ## Formatting and lints.
	cargo fmt --all --check
	cargo clippy --workspace --all-targets $(LOCKED) -- -D warnings

# Always the whole workspace: a selection of crates selects other features of what they depend on, and builds all of that twice.
build: setup
	cargo build --workspace $(LOCKED)

unit: build controlplane ## Tests of every crate but the suites.
	PACER_BIN="$(BIN)/pacer" cargo test --workspace --exclude pacer-suites $(LOCKED)

suites: build controlplane ## Flows, faults, demand, webhooks, policies and modes on the real API server.
	PACER_BIN="$(BIN)/pacer" cargo test --workspace --test admission --test demand --test autoscaling --test flows --test faults --test webhooks --test policies --test receipts --test runnersets --test modes --test takeover --test tenants --test layout $(LOCKED) -- --test-threads=$(SUITE_THREADS)

POLICIES := emptiest-node-first confirm-idle oldest-first max-lifetime warm-spare office-hours sticky-until-done fair-share fits-the-cluster \
	ramp-limit reason-aware learned-registration-timeout

policies: build ## The policy library as components in target/policies, each checked and tested.
	cargo build $(LOCKED) $(POLICIES:%=-p pacer-policy-%) --target $(WASM_TARGET) --profile policy --target-dir target/policies
	for policy in $(POLICIES); do
	  module="target/policies/$(WASM_TARGET)/policy/pacer_policy_$${policy//-/_}.wasm"
	  "$(BIN)/pacer" policy componentize "$$module" -o "target/policies/$$policy.wasm"
	  "$(BIN)/pacer" policy check "target/policies/$$policy.wasm" >/dev/null
	  "$(BIN)/pacer" policy test "target/policies/$$policy.wasm" "policies/$$policy/cases"
	done

example-policies: build ## The example policy in every language whose toolchain is here.
	examples/policies/build.sh "$(BIN)/pacer" target/example-policies

test: check unit policies example-policies suites ## Everything that has to hold.

demo: setup controlplane ## The operator at work, in a terminal. ARGS=--keep leaves it running.
	@echo "building the operator and the demo (some ten minutes the first time)"
	cargo build --workspace $(LOCKED)
	PACER_BIN="$(BIN)/pacer" "$(BIN)/pacer-demo" $(ARGS)

bench: setup controlplane ## Fleets of 200 and 1,000 runners: times, writes, calls, CPU, memory.
	cargo build --release -p pacer -p pacer-suites $(LOCKED)
	PACER_BIN="$(CURDIR)/target/release/pacer" target/release/fleet-benchmark $(ARGS)

bench-policy: setup ## What a policy costs: the tables of docs/policies.md, of the shipped one.
	cargo build --release -p pacer $(LOCKED)
	target/release/pacer policy bench builtin --table

golden: setup ## Writes the golden files anew; review the difference.
	UPDATE_GOLDEN=1 cargo test -p pacer-api -p pacer-operator

deny: ## Licences, advisories and duplicate versions, where cargo-deny is installed.
	cargo deny check
