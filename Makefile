# SPDX-License-Identifier: Apache-2.0
#
# Every target sets up what it needs: Debian packages only when missing,
# everything else under the user's cache directory. Longer logic is Go.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)
APT := $(SUDO) DEBIAN_FRONTEND=noninteractive apt-get -qq
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/temper
LINT := go tool -modfile=tools/lint.mod golangci-lint
GO_FILES = $(shell git ls-files '*.go')
C_FILES = $(shell git ls-files '*.c' '*.h')

# What `make guest` runs, and where.
PKG ?= ./internal/sched
RUN ?= .
KERNEL ?= 7.2
TOPOLOGY ?= 1s4c1t
MODE ?= functional
SOAK ?= 2h

# Where `make e2e-record` puts its records.
RECORD ?= out/kubernetes
PROGRAMS_E2E = $$(go run ./tools/kube etcd kube-apiserver kube-scheduler kube-controller-manager kubelet kubectl)

# Where `make bench` puts its records, a directory for each entry of the campaign.
BENCH ?= out/bench
# Void windows (exit 3) are kept, with their reasons, and end nothing.
define campaign
out/temper-lab campaign bench/campaign.yaml --out $(1) $(2) || test $$? -eq 3
out/temper-lab verify $(1)/*/
out/temper-lab targets --records $(1)
endef
IN_GUEST = $(CACHE)/bin/inguest -kernel $(KERNEL) -topology $(TOPOLOGY) -mode $(MODE) -packages memcached,redis-server,stress-ng -timeout 29m
IN_SLOW_GUEST = $(CACHE)/bin/inguest -v -kernel $(KERNEL) -topology $(TOPOLOGY) -mode deterministic -instruction-ns 16 -packages stress-ng -timeout 24h

help: ## this list
	@sed -nE 's/^([a-z0-9-]+):.*## (.*)/\1\t\2/p' Makefile | expand -t 16

demo: build need-gcc need-libc6-dev ## memcached beside 0 to 16 spinners, PostgreSQL at a CPU limit: stock kernel, tuned, Temper; writes a page below out/
	out/temper-lab demo $(ARGS)

bench: build need-gcc need-libc6-dev ## the whole campaign, unattended, for hours, its reports and targets; goes on where it ended; ARGS='--only burst,wakeup' for a part
	$(call campaign,$(BENCH),$(ARGS))

bench-quick: build need-gcc need-libc6-dev ## a smaller campaign, in a quarter of an hour on two CPUs
	$(call campaign,out/quick,--list quick $(ARGS))

# What is built, as sourceCommit in cmd/temper-lab has it.
COMMIT = $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)$(if $(shell git status --porcelain -- :/ ':(top,exclude)bench/records' ':(top,exclude,glob)**/*.md' 2>/dev/null),+)

# No commit and no path inside: equal source gives equal bytes, which is what a
# record names. temper-lab alone, which no guest runs, knows what all were built of.
build: ## the commands, static, in out/
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags=-buildid= -ldflags='./cmd/temper-lab=-buildid= -X main.builtOf=$(COMMIT)' -o out/ ./cmd/...

test: need-gcc need-libc6-dev vet ## everything, in guests with other kernels too: what a fresh machine can verify
	go run ./tools/matrix $(ARGS)

check: fmt vet lint unit ## what to run before a commit: format, vet, lint, unit tests

fmt: need-clang-format-19 ## Go and C files are formatted (fails, changes nothing)
	@test -z "$$(gofmt -l $(GO_FILES) | tee /dev/stderr)"
	@clang-format-19 --dry-run -Werror $(C_FILES)

format: need-clang-format-19 ## formats Go and C files
	@gofmt -w $(GO_FILES)
	@clang-format-19 -i $(C_FILES)

vet: ## go vet
	go vet ./...

lint: ## golangci-lint; the first build of the linter takes minutes
	$(LINT) run ./...

unit: need-gcc need-libc6-dev ## unit tests, BPF decisions and the repository's rules on this machine
	go test ./...

guest: inguest ## tests in one guest: PKG=./cmd/temper RUN=TestName KERNEL=6.18 TOPOLOGY=1s2c2t MODE=deterministic
	REQUIRE_ALL=1 CGO_ENABLED=0 go test -v -count=1 -p 1 -timeout 30m -exec '$(IN_GUEST)' -run '$(RUN)' $(PKG)

# On a processor of which an instruction takes 16 ns, two virtual hours are one of
# the host's, on one of its CPUs; two of them, of two kernels, can run at once.
soak: inguest ## hours of stress in virtual time: SOAK=2h KERNEL=6.18 TOPOLOGY=1s2c1t
	TEMPER_SOAK=$(SOAK) REQUIRE_ALL=1 CGO_ENABLED=0 go test -v -count=1 -timeout 24h -run '^TestSoak$$' -exec '$(IN_SLOW_GUEST)' ./internal/sched

e2e: ## a control plane here, a node with kubelet in a guest, for half an hour: RUN=TestNode/upgrade
	programs=$(PROGRAMS_E2E); \
		TEMPER_E2E=$$programs go test -v -count=1 -timeout 150m -run '$(RUN)' ./test/e2e

e2e-record: build ## memcached's tail on that node, attached and in safe mode, for half an hour: RECORD=bench/records/NAME
	programs=$(PROGRAMS_E2E); TEMPER_RECORD=$(abspath $(RECORD)) \
		TEMPER_E2E=$$programs go test -v -count=1 -timeout 150m -run TestRecord ./test/e2e
	out/temper-lab report $(RECORD)
	out/temper-lab verify $(RECORD)

inguest:
	@CGO_ENABLED=0 go build -o $(CACHE)/bin/inguest ./tools/inguest

image: ## the agent's image for amd64 and arm64, an OCI layout, and its modules (SPDX), in out/
	go run ./tools/image $(ARGS)

manifests: ## deploy/manifests, as the chart renders them
	go run ./tools/installcheck -write

install-check: ## chart, manifests and alert rules, by helm, kubeconform and promtool; their first build takes minutes
	go run ./tools/installcheck

targets: ## the table of targets in README, from the committed records
	go run ./cmd/temper-lab targets --readme README.md

kube: ## builds a real control plane in the cache: PROGRAMS="etcd kube-apiserver"
	@go run ./tools/kube $(or $(PROGRAMS),etcd kube-apiserver)

kube-api-test: ## internal/kube and the released manifests against a real API server
	go run ./tools/matrix -only '^kube$$'

fuzz: ## every fuzz test, one to a CPU at a time: FUZZTIME=10s for each, FUZZ=ParseList only such
	go run ./tools/fuzz -time $(or $(FUZZTIME),10s) -only "$(FUZZ)"

generate: need-clang-19 need-llvm-19 need-libbpf-dev need-linux-libc-dev ## all generated files: BPF objects and their Go bindings
	go generate ./...

generate-diff: generate ## fails if a committed generated file is not what its source gives
	git diff --exit-code --stat

ci: fmt lint generate-diff test ## all of it; test has the unit tests, with the race detector

# need-X installs the Debian package X, quietly and only when it is missing.
need-%:
	@dpkg -s $* >/dev/null 2>&1 || { echo "installing $*"; $(APT) update && $(APT) install --no-install-recommends $* >/dev/null; }

.PHONY: help image manifests install-check targets demo bench bench-quick build test check fuzz fmt format vet lint unit guest e2e e2e-record inguest kube kube-api-test generate generate-diff ci
