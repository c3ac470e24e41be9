// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// module is where a program's source is.
type module struct{ path, version string }

var (
	kubernetes = module{"k8s.io/kubernetes", "v1.36.3"}
	etcd       = module{"go.etcd.io/etcd/server/v3", "v3.7.3"}
)

// program is one binary.
type program struct {
	name   string
	module module
	pkg    string // of main
}

var programs = []program{
	{"etcd", etcd, etcd.path},
	{"kube-apiserver", kubernetes, kubernetes.path + "/cmd/kube-apiserver"},
	{"kube-scheduler", kubernetes, kubernetes.path + "/cmd/kube-scheduler"},
	{"kube-controller-manager", kubernetes, kubernetes.path + "/cmd/kube-controller-manager"},
	{"kubelet", kubernetes, kubernetes.path + "/cmd/kubelet"},
	{"kubectl", kubernetes, kubernetes.path + "/cmd/kubectl"},
}

func known() []string {
	var out []string
	for _, p := range programs {
		out = append(out, p.name)
	}
	return out
}

// ldflags give a program of Kubernetes its version, which it has from its own
// build otherwise; kubectl fails without one.
func (m module) ldflags() string {
	if m != kubernetes {
		return "-s -w"
	}
	flags := []string{"-s -w"}
	v := strings.SplitN(strings.TrimPrefix(m.version, "v"), ".", 3)
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(flags, fmt.Sprintf("-X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s", pkg, m.version, v[0], v[1]))
	}
	return strings.Join(flags, " ")
}

// goMod is a module that only requires m, and replaces what m itself does:
// a module's replacements count for itself alone.
func (m module) goMod(ctx context.Context) (string, error) {
	out, err := goCommand(ctx, "", "mod", "download", "-json", m.path+"@"+m.version).Output()
	if err != nil {
		return "", fmt.Errorf("download module %s: %w", m.path, stderrOf(err))
	}
	var downloaded struct{ GoMod string }
	if err := json.Unmarshal(out, &downloaded); err != nil {
		return "", fmt.Errorf("read answer of go mod download: %w", err)
	}
	out, err = goCommand(ctx, "", "mod", "edit", "-json", downloaded.GoMod).Output()
	if err != nil {
		return "", fmt.Errorf("read module %s: %w", m.path, stderrOf(err))
	}
	return goModOf(m, out)
}

// goModOf is goMod of upstream's go.mod as JSON. The parts of Kubernetes lie in
// its own tree there, and are published as v0.minor.patch for its v1.minor.patch.
func goModOf(m module, upstream []byte) (string, error) {
	var mod struct {
		Go      string
		Replace []struct {
			Old, New struct{ Path, Version string }
		}
	}
	if err := json.Unmarshal(upstream, &mod); err != nil {
		return "", fmt.Errorf("read module %s: %w", m.path, err)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "module programs\n\ngo %s\n\nrequire %s %s\n", mod.Go, m.path, m.version)
	for _, r := range mod.Replace {
		to := r.New.Path + " " + r.New.Version
		if strings.HasPrefix(r.New.Path, "./staging/") {
			to = r.Old.Path + " v0" + strings.TrimPrefix(m.version, "v1")
		} else if r.New.Version == "" {
			continue // a folder beside it, which the proxy does not have
		}
		fmt.Fprintf(&text, "replace %s => %s\n", r.Old.Path, to)
	}
	return text.String(), nil
}

// goCommand is the go command in dir, without what this repository or its user
// set for other modules.
func goCommand(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	if dir == "" {
		cmd.Dir = os.TempDir()
	}
	flags := strings.TrimSpace(os.Getenv("GOFLAGS") + " -mod=mod")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS="+flags, "PWD="+filepath.Clean(cmd.Dir))
	return cmd
}

// stderrOf adds what a command said to its exit status.
func stderrOf(err error) error {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w\n%s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return err
}
