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
# Tests of a suite at a time, and suites at a time: each test has a control plane to itself, and waits for much of its time.
SUITE_THREADS := 3
SUITES_AT_ONCE := 4
BIN := $(CURDIR)/target/debug
# Platform of the image and of the release, by the names that images have: ARCH=arm64 is built on amd64 with Debian's gcc-aarch64-linux-gnu, and run
# where qemu-aarch64-static is installed.
HOST_ARCH := $(patsubst aarch64,arm64,$(patsubst x86_64,amd64,$(shell uname -m)))
ARCH ?= $(HOST_ARCH)
RUST_amd64 := x86_64
RUST_arm64 := aarch64
LINKER_OF_amd64 := X86_64
LINKER_OF_arm64 := AARCH64
CPU := $(or $(RUST_$(ARCH)),$(error ARCH is $(ARCH); it may be amd64 or arm64))
RELEASED := target/release
ifneq ($(ARCH),$(HOST_ARCH))
  RELEASED := target/$(CPU)-unknown-linux-gnu/release
  CROSS := --target $(CPU)-unknown-linux-gnu
  # Of that platform alone: named for this machine's as well, all that is built here would be built anew.
  export CARGO_TARGET_$(LINKER_OF_$(ARCH))_UNKNOWN_LINUX_GNU_LINKER := $(CPU)-linux-gnu-gcc
  export CC_$(CPU)_unknown_linux_gnu := $(CPU)-linux-gnu-gcc
  export RUN := $(if $(shell command -v qemu-$(CPU)-static),qemu-$(CPU)-static -L /usr/$(CPU)-linux-gnu,)
endif
export ARCH

# No path of the machine is in what is shipped: two machines build the same bytes.
CRATES := $(or $(CARGO_HOME),$(HOME)/.cargo)
REMAPPED = $(RUSTFLAGS) --remap-path-prefix=$(CURDIR)=/pacer --remap-path-prefix=$(CRATES)=/cargo
define without_paths
	for path in "$(CURDIR)" "$(CRATES)"; do
	  if grep -aqF "$$path/" $(RELEASED)/pacer; then echo "the program names $$path, a place on this machine" >&2; exit 1; fi
	done
endef

DENY_VERSION := 0.20.2
AUDIT_VERSION := 0.22.2
AUDITABLE_VERSION := 0.7.7
CYCLONEDX_VERSION := 0.5.9
CRANE_VERSION := v0.22.1
ORAS_VERSION := v1.3.6
COSIGN_VERSION := v3.1.3
# The modules of the test `suites`, which runs on control planes; the other tests beside it only read files.
SUITES := $(filter-out suites book layout,$(patsubst tests/suites/tests/%.rs,%,$(wildcard tests/suites/tests/*.rs)))
# The longest begin first, so that none of them is left to run alone.
LONGEST := faults autoscaling policies chart tenants late_flag waiting receipts takeover rollouts flows runnersets modes recover doctor alerts
# They bound seconds and requests: they run when all the others are over, two at a time. The longest begin first.
QUIET := scale limits hostile shards
# They have tests that do so, which are ignored until then.
TIMED := tenants traces policies
# Every policy that has cases, but the shipped one, which is embedded in the binary and tested there.
POLICIES := $(filter-out default,$(patsubst policies/%/cases/,%,$(wildcard policies/*/cases/)))

.PHONY: help setup cross tools controlplane helm registry build program check formatting lint lint-interpreter rustdoc docs alerts-test deny advisories each-crate unit suites fuzz-fleet fuzz-decoders policies example-policies test demo page-test page-screenshots bench bench-compare bench-large bench-facts bench-page bench-limits bench-simulate bench-week bench-simulate-short bench-policy profile image image-test image-twice release-tools release-cross-tools release release-all release-push release-check golden

help: ## Lists the targets.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: ## Installs the pinned toolchain and the wasm target where they are missing.
	@command -v rustup >/dev/null || { echo "rustup is missing: install it, then run make again" >&2; exit 1; }
	rustup run $(TOOLCHAIN) rustc --version >/dev/null 2>&1 || rustup toolchain install $(TOOLCHAIN) --profile minimal --component clippy --component rustfmt
	rustup target list --installed --toolchain $(TOOLCHAIN) | grep -qx $(WASM_TARGET) || rustup target add --toolchain $(TOOLCHAIN) $(WASM_TARGET)

tools: ## Installs cargo-deny, which `make check` runs where it is there, and cargo-audit. Compiles for minutes.
	cargo install cargo-deny --locked --version $(DENY_VERSION)
	cargo install cargo-audit --locked --version $(AUDIT_VERSION)

controlplane: ## Builds etcd, kube-apiserver, kube-controller-manager and kubectl once, unless KUBEBUILDER_ASSETS has them.
	@sh tests/controlplane/build.sh >/dev/null

helm: ## Builds helm once, unless HELM names one.
	@sh tests/helm/build.sh >/dev/null

registry: ## Builds the registry of the tests once.
	@sh tests/registry/build.sh >/dev/null

check: setup deny lint rustdoc ## Dependencies, formatting, lints, documentation.

formatting: setup ## Whether rustfmt would change anything.
	cargo fmt --all --check
	cargo fmt --manifest-path policies/interpreter/Cargo.toml --check

lint: formatting ## Formatting and lints.
	cargo clippy --workspace --all-targets $(LOCKED) -- -D warnings

lint-interpreter: setup ## Lints of the interpreter of texts, which is a workspace of its own.
	RUSTFLAGS='--cfg getrandom_backend="unsupported"' cargo clippy --manifest-path policies/interpreter/Cargo.toml $(LOCKED) \
	  --target $(WASM_TARGET) --target-dir target/policies -- -D warnings

rustdoc: setup ## The documentation of all crates, without a warning.
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps $(LOCKED)

docs: setup ## The book of docs/ in target/book/html, with every link looked at. Installs mdbook into ~/.cache/pacer the first time.
	docs/book.sh

alerts-test: setup ## Alert rules on series of faults, and the queries of the dashboard, with promtool: PROMTOOL, or Debian's, downloaded once.
	cargo test --workspace --test book $(LOCKED) -- alerts

deny: setup ## Licences, sources, and which crates may know which; `make tools` installs what it needs.
	@if cargo deny --version >/dev/null 2>&1; then
	  cargo deny check bans licenses sources
	  cargo deny --manifest-path policies/interpreter/Cargo.toml --config deny.toml check licenses sources
	else
	  echo "SKIPPED: cargo deny, which is not installed here; \`make tools\` installs it" >&2
	fi

# Every lock file: that of the workspace, and that of the interpreter, whose crates run in every policy that is a text.
LOCK_FILES = $(shell git ls-files '*Cargo.lock')
# Options of cargo-audit, such as --db and --no-fetch with a database that is there already.
AUDIT_ARGS ?=
advisories: ## Known vulnerabilities of what is locked, with cargo-deny and cargo-audit; fetches the RustSec database.
	cargo deny check advisories
	cargo deny --manifest-path policies/interpreter/Cargo.toml --config deny.toml check advisories
	for lock in $(LOCK_FILES); do
	  echo "cargo audit of $$lock"
	  cargo audit --deny unsound --file "$$lock" $(AUDIT_ARGS)
	done

each-crate: setup ## Every crate on its own, with the features that it asks for itself.
	for manifest in $$(git ls-files '*/Cargo.toml'); do
	  echo "checking $$manifest"
	  cargo check --manifest-path "$$manifest" --all-targets $(LOCKED)
	done

# Always the whole workspace with its tests: any other selection selects other features of what is depended on, and builds all of that twice.
build: setup
	cargo build --workspace --all-targets $(LOCKED)
	# Ten seconds once, and not in every process of the tests that is given a text.
	"$(BIN)/pacer" policy precompile

# With the demo it is built with the features that it has in the whole workspace, which the test `layout` checks, and alone with others: all twice.
program: setup
	cargo build -p pacer -p pacer-demo $(LOCKED)

unit: build controlplane ## Tests of every crate but the suites, the layout of all, and the documentation.
	PACER_BIN="$(BIN)/pacer" cargo test --workspace --exclude pacer-suites $(LOCKED)
	PACER_BIN="$(BIN)/pacer" cargo test --workspace --test layout --test book $(LOCKED)

suites: build controlplane helm registry ## Flows, faults, demand, webhooks, policies and modes on the real API server; SUITES="flows faults" for some.
	export PACER_BIN="$(BIN)/pacer" LOCKED="$(LOCKED)" SUITE_THREADS="$(SUITE_THREADS)" SUITES_AT_ONCE="$(SUITES_AT_ONCE)"
	# Of all suites together; one alone may have nothing to compare.
	export COMPARED_AT_LEAST="$(if $(filter file,$(origin SUITES)),50,0)"
	export QUIET="$(filter $(SUITES),$(QUIET))" TIMED="$(filter $(SUITES),$(TIMED))"
	export BESIDE="$(BESIDE)"
	tests/suites/run.sh $(filter $(SUITES),$(LONGEST)) $(filter-out $(LONGEST) $(QUIET),$(SUITES))

SCENE ?= burst
SEEDS ?= 100000
FIRST ?= 0
fuzz-fleet: setup ## The control loops in virtual time, SEEDS=100000 worlds from FIRST=0; prints a short script for each failure.
	cargo run --release -p pacer-laboratory $(LOCKED) -- $(SEEDS) $(FIRST)

SECONDS ?= 180
DECODER ?=
fuzz-decoders: setup ## Every decoder of foreign bytes with libFuzzer, SECONDS=180 each; DECODER=word for some. `make unit` gives each a thousand inputs.
	LOCKED="$(LOCKED)" tests/fuzz/run.sh "$(SECONDS)" "$(DECODER)"

# `make test` builds everything anyway; a build of the program alone would compile most crates once more, with fewer features.
POLICIES_NEED := program
policies: $(POLICIES_NEED) ## The policy library as components in target/policies, each checked and tested.
	cargo build $(LOCKED) $(POLICIES:%=-p pacer-policy-%) --target $(WASM_TARGET) --profile policy --target-dir target/policies
	for policy in $(POLICIES); do
	  module="target/policies/$(WASM_TARGET)/policy/pacer_policy_$${policy//-/_}.wasm"
	  "$(BIN)/pacer" policy componentize "$$module" -o "target/policies/$$policy.wasm"
	  "$(BIN)/pacer" policy check "target/policies/$$policy.wasm" >/dev/null
	  "$(BIN)/pacer" policy test "target/policies/$$policy.wasm" "policies/$$policy/cases"
	done

example-policies: build ## The example policy in every language whose toolchain is here.
	examples/policies/build.sh "$(BIN)/pacer" target/example-policies

# What is beside another takes the processor time that it leaves: the policy library beside the crates' tests; lints and documentation beside the
# suites, in tests/suites/run.sh. The example policies are alone: how long they take is compared with the built-in policy. With the variable MAKE in
# place of the name, `make -n test` would run all of it.
test: formatting deny build controlplane helm registry ## Everything that has to hold.
	make policies POLICIES_NEED=build >target/policies.log 2>&1 &
	policies=$$!
	make unit || failed=unit
	wait $$policies || failed+=" policies"
	cat target/policies.log
	if [[ -n "$${failed:-}" ]]; then echo "failed: $$failed" >&2; exit 1; fi
	make example-policies
	make suites BESIDE="lint rustdoc"

demo: setup ## The operator at work, in a terminal. ARGS=--keep leaves it running.
	@echo "1 of 3: the control plane of the tests, which is built once (five to ten minutes on two cores) and kept in ~/.cache/pacer"
	@sh tests/controlplane/build.sh >/dev/null
	@echo "2 of 3: the operator and the demo, and nothing else (five to eight minutes the first time, then under a minute)"
	# What these two depend on has the same features as in the whole workspace, which the test `layout` checks, so that nothing is built twice.
	cargo build -p pacer -p pacer-demo $(LOCKED)
	@echo "3 of 3: the demo itself, which takes about two minutes"
	PACER_BIN="$(BIN)/pacer" "$(BIN)/pacer-demo" $(ARGS)

page-test: build controlplane ## Every screen of the page in headless Chromium, on canned data and of a running operator. Takes node 20 and Chromium; CHROMIUM names another one.
	@if ! command -v node npm >/dev/null || ! node -e 'process.exit(+(process.versions.node.split(".")[0] < 20))'; then
	  echo "SKIPPED: the page, which takes node 20 and npm" >&2
	  [[ -z "$${PACER_BROWSER:-}" ]]
	elif ! [[ -x "$${CHROMIUM:-/usr/bin/chromium}" ]]; then
	  echo "SKIPPED: the page, which takes Chromium (apt-get install chromium, or CHROMIUM=its path)" >&2
	  [[ -z "$${PACER_BROWSER:-}" ]]
	else
	  cd tests/page
	  npm ci --silent
	  node --test test.mjs
	  cd ../..
	  PACER_BROWSER=required PACER_BIN="$(BIN)/pacer" cargo test --workspace --test suites $(LOCKED) -- page::browser
	fi

page-screenshots: ## Writes the pictures of docs/page.md anew, with what page-test takes.
	cd tests/page
	npm ci --silent
	mkdir -p ../../docs/images
	node screenshots.mjs ../../docs/images

bench: setup controlplane ## Fleets of 200 and 1,000 runners: times, writes, calls, CPU, memory.
	PACER_OWN_GLIBC=1 cargo build --release -p pacer -p pacer-suites $(LOCKED)
	PACER_BIN="$(CURDIR)/target/release/pacer" target/release/fleet-benchmark $(ARGS)

BEFORE ?= HEAD~1
ROUNDS ?= 2
bench-compare: setup controlplane ## The figures of commit BEFORE=HEAD~1 and of this tree side by side, measured in turns ROUNDS=2 times; fails where one is 5 % worse. ARGS as for bench.
	PACER_OWN_GLIBC=1 cargo build --release -p pacer -p pacer-suites $(LOCKED)
	tests/bench/compare.sh target/release/fleet-benchmark target/release/pacer "$(BEFORE)" "$(ROUNDS)" $(ARGS)

bench-large: ## Ten thousand idle runners, 500 idle repositories, 50 events a second beside 20,000 open jobs. Takes forty minutes and 8 GiB.
	$(MAKE) bench ARGS="--scenes large,repositories,steady"

bench-facts: ## What it costs to tell a policy every fact, with 1,000 idle runners: writes, lists of nodes, memory. Takes ten minutes.
	$(MAKE) bench ARGS="--scenes facts --runners 1000"

bench-page: ## What the page costs the operator: ten viewers of 1,000 runners with 50 changes a second. Takes five minutes.
	$(MAKE) bench ARGS="--scenes page --runners 1000"

bench-limits: build controlplane ## A thousand removals and ten minutes of three jobs a second within GitHub's secondary limits. Takes twenty minutes.
	PACER_FULL_SIZE=1 PACER_BIN="$(BIN)/pacer" cargo test --workspace --test suites $(LOCKED) -- limits:: --nocapture --test-threads 1

bench-simulate: ## How far the simulator is off: five kinds of load, three seeds each, recorded, simulated, and predicted for another policy.
	$(MAKE) bench ARGS="--scenes calibration"

bench-week: setup ## A week of 100,000 jobs is simulated in less than a minute.
	PACER_OWN_GLIBC=1 cargo test --release -p pacer -p pacer-suites -p pacer-simulate --test week $(LOCKED) -- --include-ignored --nocapture

bench-simulate-short: bench-week ## That, and one of these loads with one seed; four minutes beside the build.
	$(MAKE) bench ARGS="--scenes calibration --loads steady --seeds 1"

profile: setup controlplane ## Where the operator's processor time and memory go in SCENE of the benchmark (burst): target/profile. Takes perf and heaptrack.
	cargo build --profile profiling -p pacer -p pacer-suites $(LOCKED)
	tests/profile/run.sh target/profiling "$(SCENE)" target/profile

# Microseconds that half of the calls of the default scale-down may take, with the way to the process that runs it and back.
bench-policy: setup ## What the shipped policy costs on this machine; fails beyond 0.3 ms for 100 candidates, or 1.5 ms for 1,000.
	cargo build --release -p pacer $(LOCKED)
	target/release/pacer policy bench builtin --table | tee target/bench-policy.md
	awk -F'|' '
	  BEGIN { most["100"] = 300; most["1000"] = 1500 }
	  $$2 == " scale-down " {
	    size = $$3; gsub(/[ ,]/, "", size)
	    took = $$5; gsub(/[ ,]/, "", took)
	    micros = took ~ /ms$$/ ? took * 1000 : took + 0
	    if (size in most) { seen++; if (micros > most[size]) { print "scale-down of " size " takes " took ", more than " most[size] " µs"; missed = 1 } }
	  }
	  END { if (seen != 2) print "no figures"; exit missed || seen != 2 }' target/bench-policy.md

cross: setup ## Installs the Rust target of ARCH where it is missing.
	rustup target list --installed --toolchain $(TOOLCHAIN) | grep -qx $(CPU)-unknown-linux-gnu || rustup target add --toolchain $(TOOLCHAIN) $(CPU)-unknown-linux-gnu

image: cross ## Writes an OCI layout with the release build into target/image, and its root into target/image-root for the Dockerfile. ARCH=arm64 for that platform.
	RUSTFLAGS="$(REMAPPED)" PACER_OWN_GLIBC=1 cargo build --release -p pacer $(CROSS) $(LOCKED)
	$(without_paths)
	rm -rf target/image target/image-root target/image-files.tsv
	deploy/image/build.sh $(RELEASED)/pacer target/image

# What may mount, where that is not who builds.
SUPERUSER := $(if $(filter 0,$(shell id -u)),,sudo -n --preserve-env env PATH="$$PATH")
image-test: image build controlplane ## The operator of `make image` on its own root, which nobody may write, passes the suite `flows`. Takes the superuser.
	# Whatever it writes has to be refused there, or it is not the image's root that it runs on.
	if said=$$($(SUPERUSER) tests/suites/in-root.sh man /tmp/man 2>&1); then echo "image: it can write: $$said" >&2; exit 1; fi
	grep -q "Read-only file system" <<<"$$said" || { echo "image: $$said" >&2; exit 1; }
	$(SUPERUSER) env PACER_BIN="$(CURDIR)/tests/suites/in-root.sh" cargo test --workspace --test suites $(LOCKED) -- flows:: --test-threads="$(SUITE_THREADS)"

image-twice: cross ## Builds program and image of the last commit from nothing in two places, and compares them byte by byte. Takes an hour on two cores.
	rm -rf target/twice
	# The same commit for both, whatever happens meanwhile.
	commit=$$(git rev-parse HEAD)
	for place in first second-elsewhere; do
	  git worktree prune
	  git worktree add --detach "target/twice/$$place" "$$commit"
	  make -C "target/twice/$$place" image
	done
	cmp target/twice/{first,second-elsewhere}/$(RELEASED)/pacer
	diff -r target/twice/{first,second-elsewhere}/target/image
	for place in first second-elsewhere; do git worktree remove --force "target/twice/$$place"; done
	echo "two builds in two places are identical"

release-tools: tools ## Installs cargo-auditable, cargo-cyclonedx, crane, oras and cosign, which `make release` and `make release-push` run.
	cargo install cargo-auditable --locked --version $(AUDITABLE_VERSION)
	cargo install cargo-cyclonedx --locked --version $(CYCLONEDX_VERSION)
	go install github.com/google/go-containerregistry/cmd/crane@$(CRANE_VERSION)
	go install oras.land/oras/cmd/oras@$(ORAS_VERSION)
	go install github.com/sigstore/cosign/v3/cmd/cosign@$(COSIGN_VERSION)

release: cross helm policies ## For ARCH: writes archives, image, chart, manifests, policies, SBOM, checksums and provenance into target/release-files.
	export RUSTFLAGS="$(REMAPPED)"
	# The image brings its own glibc, the archives meet older ones.
	PACER_OWN_GLIBC=1 cargo auditable build --release -p pacer $(CROSS) $(LOCKED)
	install -m 755 $(RELEASED)/pacer target/pacer-of-the-image
	cargo auditable build --release -p pacer $(CROSS) $(LOCKED)
	$(without_paths)
	cargo cyclonedx --manifest-path host/pacer/Cargo.toml --format json --override-filename sbom
	# The interpreter of texts is compiled into the program, and its crates are locked apart.
	cargo cyclonedx --manifest-path policies/interpreter/Cargo.toml --format json --override-filename sbom
	export SOURCE_DATE_EPOCH="$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)}"
	(cd deploy/release/sbom && GOWORK=off go run . "$(CURDIR)" "$(CURDIR)/host/pacer/sbom.json" "$(CURDIR)/policies/interpreter/sbom.json") >target/sbom.json
	# It writes one for each crate, beside its manifest.
	find host policies tests examples -name sbom.json -delete
	rm -rf target/release-files
	SBOM=target/sbom.json IMAGE_BINARY=target/pacer-of-the-image deploy/release/build.sh $(RELEASED)/pacer target/policies target/release-files

release-cross-tools: ## Installs what the release for arm64 takes on an amd64 Debian or Ubuntu: a linker with its libraries, and an emulator.
	$(if $(filter 0,$(shell id -u)),,sudo -n) apt-get update -qq
	$(if $(filter 0,$(shell id -u)),,sudo -n) apt-get install -qq --yes gcc-aarch64-linux-gnu qemu-user-static

# What does not depend on a platform has to come out the same for both.
release-all: ## What `make release` writes, for amd64 and arm64 together.
	rm -rf target/release-of-platforms
	mkdir -p target/release-of-platforms
	for arch in amd64 arm64; do
	  $(MAKE) release ARCH="$$arch"
	  mv target/release-files "target/release-of-platforms/$$arch"
	done
	deploy/release/merge.sh target/release-files target/release-of-platforms/amd64 target/release-of-platforms/arm64

release-push: ## Signs what `make release` or `make release-all` wrote, and pushes image, chart and policies to REGISTRY.
	@: "$${REGISTRY:?the registry and its path, such as ghcr.io/example}"
	PATH="$$(go env GOPATH)/bin:$$PATH" deploy/release/push.sh target/release-files target/policies

release-check: policies helm ## Builds a release of the debug program twice and looks at it as somebody who downloads it.
	deploy/release/check.sh "$(BIN)/pacer" target/policies

golden: setup controlplane helm ## Writes the golden files and the generated pages anew; review the difference.
	UPDATE_GOLDEN=1 cargo test --workspace --lib --test crds --test pod
	UPDATE_GOLDEN=1 cargo test --workspace --test layout -- the_chart_shares
	UPDATE_GOLDEN=1 cargo test --workspace --test replicas
	UPDATE_GOLDEN=1 cargo test --workspace --test suites -- chart::rendered::rendered_manifests chart::values::table_of_values
	# What the program itself says: its flags, and its metrics on the control plane.
	cargo build --workspace --bin pacer $(LOCKED)
	PACER_BIN="$(BIN)/pacer" UPDATE_GOLDEN=1 cargo test --workspace --test suites $(LOCKED) -- metrics::
	PACER_BIN="$(BIN)/pacer" UPDATE_GOLDEN=1 cargo test --workspace --test book $(LOCKED) -- page
