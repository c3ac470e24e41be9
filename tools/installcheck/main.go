// SPDX-License-Identifier: Apache-2.0

// Command installcheck checks what is installed in clusters, with the tools of
// those who install it: the chart by helm, what it renders by kubeconform
// against the API server's own schemas, the alert rules by promtool; that the
// agent takes the configurations; that deploy/manifests is what the chart
// renders, and that the overlay deploy/enforce, by kustomize, enforces.
//
// The tools are built from the Go module proxy at their first use, which takes
// minutes, and stay in Go's build cache.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
)

const (
	chart     = "deploy/chart/temper"
	manifests = "deploy/manifests/temper.yaml"
	overlay   = "deploy/enforce"
	rules     = chart + "/files/rules.yaml"
	ruleTests = "deploy/rules_test.yaml"

	header = "# Rendered from deploy/chart/temper by `make manifests`. DO NOT EDIT.\n"
)

func main() {
	write := flag.Bool("write", false, "write "+manifests+" and check nothing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, *write)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "installcheck:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, write bool) error {
	helm, err := find(ctx, "helm")
	if err != nil {
		return err
	}
	if write {
		text, err := base(ctx, helm)
		if err != nil {
			return err
		}
		return os.WriteFile(manifests, text, 0o644)
	}
	steps := []struct {
		name  string
		check func(context.Context, tool) error
	}{
		{"chart is sound", lint},
		{"manifests are current", current},
		{"the overlay enforces", enforces},
		{"chart refuses wrong values", refuse},
		{"agent takes what the chart takes", agree},
		{"objects are as the API server wants them", conform},
		{"alerts fire when they should", alerts},
	}
	var errs []error
	for _, s := range steps {
		if err := s.check(ctx, helm); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
			continue
		}
		fmt.Println("ok", s.name)
	}
	return errors.Join(errs...)
}

// tool is the path of a program that tools/deploy.mod names.
type tool string

// find builds the tool if Go's cache lacks it.
func find(ctx context.Context, name string) (tool, error) {
	cmd := exec.CommandContext(ctx, "go", "tool", "-n", "-modfile=tools/deploy.mod", name)
	// The tag leaves out of promtool the clients of a dozen clouds.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS="+os.Getenv("GOFLAGS")+" -tags=remove_all_sd")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", name, err, stderr.Bytes())
	}
	return tool(strings.TrimSpace(string(out))), nil
}

// run returns what the tool prints; what it says on failure is in the error.
func (t tool) run(ctx context.Context, stdin []byte, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, string(t), args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s%s", strings.Join(cmd.Args[1:], " "), err, stdout.Bytes(), stderr.Bytes())
	}
	return stdout.Bytes(), nil
}

func alerts(ctx context.Context, _ tool) error {
	promtool, err := find(ctx, "promtool")
	if err != nil {
		return err
	}
	if _, err := promtool.run(ctx, nil, "check", "rules", "--lint=all", "--lint-fatal", rules); err != nil {
		return err
	}
	_, err = promtool.run(ctx, nil, "test", "rules", ruleTests)
	return err
}
