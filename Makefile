# Every target that people and CI use; `make` or `make help` lists them.
SHELL := /bin/bash
GO ?= go
PYTHON ?= python3
VENV := .venv
BIN := bin
VERSION ?= $(shell git describe --tags --match 'v[0-9]*' --always --dirty 2>/dev/null || echo dev)
# The library, the product with the server, and the tests of whole programs are three modules (go.work).
ALL := ./... ./cmd/gpumux/... ./test/...
# Without symbols, which no trace of a crash needs, the server links in much less time.
LDFLAGS := -s -w -X main.version=$(VERSION)
# What is compiled without inlining, which costs 10 MB and no time that could be measured: most of it never runs, the rest
# waits for a disk or a network.
COLD := github.com/apache/arrow-go/v18/arrow/compute github.com/aws github.com/olivere go.temporal.io/server
# One set of flags for all that is built here, so that nothing is compiled twice. The tag takes a library for JSON out of Arrow
# that takes as long to compile as SQLite, and that nothing here calls.
export GOFLAGS += -tags=arrow_json_stdlib -trimpath $(COLD:%=-gcflags=%/...=-l)
# NVIDIA's header marks functions as deprecated, and go-nvml binds them all.
export CGO_CFLAGS ?= -O2 -g -Wno-deprecated-declarations
SNAPSHOT ?= --snapshot
export GPUMUX_TEST_PYTHON := $(CURDIR)/$(VENV)/bin/python

.PHONY: help build worker venv demo test test-root test-server race least lint fuzz bench soak gpu-bundle gpu-check nvidia-check cluster-check llm-check slurm-check kernel-check deploy-check wheel dist install-check r-check examples-check picture outdated size clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-13s %s\n", $$1, $$2}'

build: $(BIN)/gpumux ## bin/gpumux, the all-in-one with an embedded Temporal server

.PHONY: $(BIN)/gpumux
$(BIN)/gpumux:
	@test -e $@ || echo "building $@: some minutes the first time, most of them for the embedded server"
	$(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/gpumux ./cmd/gpumux

worker: ## bin/gpumux-worker, client and worker without the embedded server
	$(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/gpumux-worker ./cmd/gpumux-worker

# Python packages of the demo and the tests, in a virtual environment of the project's own.
$(VENV)/ready: examples/requirements.txt
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV) || { echo "this Python has no venv module; on Debian: apt-get install python3-venv" >&2; exit 1; }
	$(VENV)/bin/python -m pip install -q --disable-pip-version-check -r examples/requirements.txt
	@touch $@

# What only tests import.
TEST_NEEDS := examples/pmap/requirements.txt clients/python/tests/requirements.txt
$(VENV)/tests: $(VENV)/ready $(TEST_NEEDS)
	$(VENV)/bin/python -m pip install -q --disable-pip-version-check $(TEST_NEEDS:%=-r %)
	@touch $@

$(VENV)/plain: $(VENV)/ready
	$(PYTHON) -m venv --without-pip $@

venv: $(VENV)/ready ## .venv with NumPy and what else the demo and the tests use

demo: build $(VENV)/ready ## a sweep over a real data set, on the GPU if there is one
	@examples/digits/demo.sh

# A few tests that fail run once more, and the summary says so: the real processes and kills of the tests share a machine with
# others. Vet is lint's. Without symbols the programs with the server in them link in much less time. A Python without packages comes
# first on the PATH: a machine's own may be a script that looks for it, as with pyenv, or import much when it starts.
GOTESTSUM := $(CURDIR)/$(BIN)/test/gotestsum
GOTEST = PATH="$(CURDIR)/$(VENV)/plain/bin:$$PATH" $(GOTESTSUM) --format pkgname --hide-summary skipped --jsonfile $(CURDIR)/$(BIN)/test/$@.json \
	--rerun-fails=1 --rerun-fails-max-failures=3 --packages "$$($(GO) list $(PACKAGES) | grep -vE '/(cluster|install|slurm)check')" -- -skip '^TestLong_' -vet=off \
	-timeout 25m -ldflags '-s -w' $(TESTFLAGS)

$(GOTESTSUM): .ci/tools.mod .ci/tools.sum
	GOWORK=off $(GO) build -modfile=.ci/tools.mod -o $@ gotest.tools/gotestsum
	@touch $@

# Programs that are built from their modules; each file has a module's package and version.
$(BIN)/test/%: .ci/tools/%
	GOFLAGS= GOBIN=$(CURDIR)/$(BIN)/test $(GO) install -ldflags '-s -w' $$(cat $<) && touch $@

# Tests without a server beside those with one: most of what they do is waiting for processes. Go runs again what has changed since it
# passed; it cannot see the program and the files that tests of the server read, so they have their sum.
test: $(VENV)/tests $(VENV)/plain $(GOTESTSUM) ## all tests but the long ones, which soak has
	$(MAKE) -j2 test-root test-server

test-root: PACKAGES = ./...
test-root: $(VENV)/tests $(VENV)/plain $(GOTESTSUM)
	$(GOTEST)

test-server: PACKAGES = ./cmd/gpumux/... ./test/...
test-server: $(VENV)/tests $(VENV)/plain $(GOTESTSUM)
	$(GO) build -ldflags '-s -w' -o $(BIN)/test/gpumux ./cmd/gpumux
	sum=$$(find $(BIN)/test/gpumux clients deploy docs examples *.md -type f -not -path '*/__pycache__/*' | sort | xargs cat | sha256sum) && \
	GPUMUX_BINARY=$(CURDIR)/$(BIN)/test/gpumux GPUMUX_TEST_SUM="$$sum" $(GOTEST)

race: $(VENV)/tests ## all tests under the race detector
	$(MAKE) test TESTFLAGS="-race $(TESTFLAGS)"

least: ## the packages that other programs import, with the oldest Go that go.mod allows
	GOWORK=off GOTOOLCHAIN=go$$(awk '$$1 == "go" {print $$2}' go.mod) $(GO) build ./...

lint: ## gofmt, golangci-lint, workflowcheck
	@.ci/lint

fuzz: ## each fuzz target for 30 s
	@.ci/fuzz 30s

bench: $(VENV)/ready ## all benchmarks
	$(GO) test -run '^$$' -bench . -benchmem $(ALL)

wheel: $(VENV)/ready build ## dist/gpumux-….whl, the package for Python with the command, and its example run in an environment of its own
	rm -rf clients/python/build dist/gpumux-*.whl
	GPUMUX_BINARY=$(CURDIR)/$(BIN)/gpumux $(VENV)/bin/python -m pip wheel -q --disable-pip-version-check --no-deps -w dist ./clients/python
	$(PYTHON) -m venv --clear $(BIN)/wheel && $(BIN)/wheel/bin/pip install -q --disable-pip-version-check dist/gpumux-*.whl
	$(BIN)/wheel/bin/python -I clients/python/example.py

# The licenses of what is in the program, and completions of shells, as archives and packages have them.
.PHONY: notices
notices:
	@mkdir -p $(BIN)/completions
	deploy/packages/licenses.sh >$(BIN)/THIRD-PARTY-LICENSES
	for shell in bash:gpumux.bash zsh:_gpumux fish:gpumux.fish; do $(GO) run ./cmd/gpumux-worker completion $${shell%:*} >$(BIN)/completions/$${shell#*:}; done

dist: $(BIN)/test/goreleaser $(BIN)/test/cyclonedx-gomod ## dist/: archives, packages for Debian and RPM, a Homebrew cask, SBOMs, checksums, in half an hour; SNAPSHOT= publishes them
	@case $$(uname -m) in x86_64) other=aarch64;; *) other=x86_64;; esac; command -v $$other-linux-gnu-gcc >/dev/null || \
		{ echo "NVML needs a C compiler for the other processor, $$other-linux-gnu-gcc: on Debian that of the package gcc-$${other/_/-}-linux-gnu" >&2; exit 1; }
	PATH="$(CURDIR)/$(BIN)/test:$$PATH" goreleaser release --clean $(SNAPSHOT)

install-check: build ## each way to install gpumux of the last commit, in 15 minutes; after `make dist` what that made, too; RUN=Pip for one part
	$(GO) test -v -count=1 -timeout 60m -run '$(or $(RUN),$(if $(wildcard dist/SHA256SUMS),,^Test(GoInstall|Pip|Wheel)))' ./test/installcheck

r-check: ## R CMD check of clients/r, and all other tests of R; needs R with jsonlite, codetools and processx
	$(GO) test -v -count=1 -run '^Test(R_|Long_R)' ./test/e2e
	$(GO) test -count=1 ./internal/runtimes/r

examples-check: $(VENV)/tests ## the example in TypeScript, with the SDK from npm; soak has it too
	$(GO) test -v -count=1 -run '^TestLong_TypeScript' ./test/e2e

picture: $(BIN)/gpumux $(VENV)/tests ## docs/top.svg, gpumux top on a real terminal, and docs/map.webp, a map in the Web UI; needs Chromium
	@mkdir -p dist && $(VENV)/bin/python -m pip install -q --disable-pip-version-check pyte==0.8.2
	GPUMUX_PICTURE=$(CURDIR)/dist/top.bytes $(GO) test -count=1 -run '^TestTop_OfARunningMap$$' ./test/e2e
	$(VENV)/bin/python test/picture/picture.py dist/top.bytes docs/top.svg
	$(VENV)/bin/python test/picture/page.py $(BIN)/gpumux docs/map.webp

soak: $(VENV)/tests ## long tests: kills, faults, a million items, links that fail (as root, with iproute2); GPUMUX_SOAK=seed repeats a run; before a release cluster-check too
	$(GO) test -count=1 -run '^TestLong_' ./workers ./internal/slot
	$(GO) test -count=1 -timeout 60m -run '^TestLong_' ./test/e2e ./test/gpucheck
	GPUMUX_SOAK=$${GPUMUX_SOAK:-1} $(GO) test -v -count=1 -timeout 60m -run '^TestSoak_' ./test/e2e
	$(GO) test -v -count=1 -timeout 60m -tags soak,arrow_json_stdlib ./test/soak
	$(MAKE) deploy-check

gpu-bundle: ## .gpu, what gpu-check needs on a machine with a GPU and without Go
	$(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/gpu/gpumux ./cmd/gpumux
	$(GO) test -c -ldflags '-s -w' -o $(BIN)/gpu/gpucheck.test ./test/gpucheck
	$(PYTHON) test/gpucheck/bundle.py --into .gpu gpumux=$(BIN)/gpu/gpumux gpucheck.test=$(BIN)/gpu/gpucheck.test

gpu-check: ## the GPU tests and benchmarks of .gpu on this machine, in at most 7 minutes
	$(PYTHON) test/gpucheck/check.py

nvidia-check: $(VENV)/tests ## gpumux against NVIDIA's own libraries of several drivers, which need no GPU; TESTFLAGS='-args -update' keeps their answers
	@test/nvidiacheck/fetch.sh .nvidia || test $$? = 3
	$(GO) build -ldflags '-s -w' -o $(BIN)/test/gpumux ./cmd/gpumux
	GPUMUX_BINARY=$(CURDIR)/$(BIN)/test/gpumux GPUMUX_NVIDIA=$(CURDIR)/.nvidia $(GO) test -v -count=1 ./test/nvidiacheck $(TESTFLAGS)

cluster-check: ## gpumux on a real cluster, PostgreSQL, Temporal's services and S3 as processes of this machine, in 15 minutes; RUN=Outage for one part
	@test/clustercheck/fetch.sh .cluster; code=$$?; test $$code = 0 || { test $$code = 3; exit; }; \
	$(GO) build -ldflags '$(LDFLAGS)' -o .cluster/bin/gpumux ./cmd/gpumux-worker && \
	GPUMUX_CLUSTER=$(CURDIR)/.cluster $(GO) test -v -count=1 -timeout 40m -run '$(RUN)' ./test/clustercheck

llm-check: $(BIN)/gpumux ## gpumux llm beside a real vLLM on this machine's CPU, in 20 to 40 minutes after 5 to install it; RUN=Parity for one part
	@test/llmcheck/fetch.sh $(CURDIR)/.llm; code=$$?; test $$code = 0 || { test $$code = 3; exit; }; \
	.llm/venv/bin/python test/llmcheck/check.py $(BIN)/gpumux .llm $(RUN)

slurm-check: ## gpumux under a real Slurm of two nodes on this machine, as root, in 8 minutes; RUN=Python for one part; SLURM=free for one without cgroups
	@test/slurmcheck/fetch.sh; code=$$?; test $$code = 0 || { test $$code = 3; exit; }; \
	$(GO) build -ldflags '-s -w' -o $(BIN)/test/gpumux ./cmd/gpumux && \
	GPUMUX_BINARY=$(CURDIR)/$(BIN)/test/gpumux GPUMUX_SLURM=$(or $(SLURM),confined) $(GO) test -v -count=1 -timeout 30m -run '$(RUN)' ./test/slurmcheck

kernel-check: ## what happens when a container runs out of memory, in a cgroup handed over to this command; see docs/memory.md
	$(GO) build -ldflags '-s -w' -o $(BIN)/test/gpumux ./cmd/gpumux
	GPUMUX_BINARY=$(CURDIR)/$(BIN)/test/gpumux GPUMUX_KERNEL_CHECK=1 $(GO) test -v -count=1 -run '^TestKernel_' ./test/e2e

# Debian's package, unpacked and not installed.
$(BIN)/test/promtool:
	@mkdir -p $(BIN)/test
	tmp=$$(mktemp -d) && trap 'rm -rf "$$tmp"' EXIT && (cd "$$tmp" && apt-get download -q prometheus) && \
		dpkg-deb --fsys-tarfile "$$tmp"/prometheus_*.deb | tar -xf - -C "$$tmp" ./usr/bin/promtool && mv "$$tmp/usr/bin/promtool" $@

deploy-check: $(BIN)/test/promtool $(BIN)/test/helm ## the chart and the alerts of deploy/, with Helm and a promtool of Debian
	GPUMUX_TEST_STRICT=1 $(GO) test -count=1 ./deploy -run '^Test(Alerts|Helm)_' $(TESTFLAGS)

outdated: ## direct dependencies that have newer versions
	@for dir in . cmd/gpumux test; do (cd $$dir && GOWORK=off $(GO) list -mod=mod -m -u -f '{{with .Update}}{{$$.Path}} {{$$.Version}} -> {{.Version}}{{end}}' \
		$$($(GO) list -m -f '{{if not (or .Indirect .Main .Replace)}}{{.Path}}{{end}}' all)); done

size: ## lines of Go without tests, and the longest source files
	@git ls-files "*.go" | grep -vE "_test\.go$$|(^|/)test/" | xargs cat | wc -l
	@git ls-files "*.go" "*.py" "*.R" | xargs wc -l | sort -rn | head -20

clean: ## what the targets made
	rm -rf $(BIN) $(VENV) .demo .gpu .nvidia .cluster .llm dist
