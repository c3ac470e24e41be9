# SPDX-License-Identifier: Apache-2.0
#
# Every target sets up what it needs: Debian packages only when missing,
# everything else under the user's cache directory. Longer logic is Go.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)
APT := $(SUDO) DEBIAN_FRONTEND=noninteractive apt-get -qq
LINT := go tool -modfile=tools/lint.mod golangci-lint
GO_FILES = $(shell git ls-files '*.go')
C_FILES = $(shell git ls-files '*.c' '*.h')

help: ## this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' Makefile | expand -t 16

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

unit: need-gcc ## unit tests, BPF decisions and the repository's own rules, on this machine
	CGO_ENABLED=1 go test -race $(if $(SUDO),-exec '$(SUDO) -E') ./...

generate: need-clang-19 need-llvm-19 need-libbpf-dev need-linux-libc-dev ## all generated files: BPF objects and their Go bindings
	go generate ./...

generate-diff: generate ## fails if a committed generated file is not what its source gives
	git diff --exit-code --stat

# need-X installs the Debian package X, quietly and only when it is missing.
need-%:
	@dpkg -s $* >/dev/null 2>&1 || { echo "installing $*"; $(APT) update && $(APT) install --no-install-recommends $* >/dev/null; }

.PHONY: help check fmt format vet lint unit generate generate-diff
