// SPDX-License-Identifier: Apache-2.0

// Command kube builds programs of Kubernetes and etcd from the Go module proxy,
// each once, and prints the folder they are in:
//
//	go run ./tools/kube etcd kube-apiserver
//
// So tests run against a real control plane on a machine that has nothing but
// Go. The first build of all takes minutes of CPU; GOFLAGS=-p=1 keeps it to one.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	dir, err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kube:", err)
		os.Exit(1)
	}
	fmt.Println(dir)
}

// run builds what is asked for and not there, and returns the folder of all.
func run(ctx context.Context, names []string) (string, error) {
	for _, name := range names {
		if i := slices.IndexFunc(programs, func(p program) bool { return p.name == name }); i < 0 {
			return "", fmt.Errorf("unknown program %q: one of %s", name, strings.Join(known(), ", "))
		}
	}
	c, err := openCache()
	if err != nil {
		return "", err
	}
	defer c.close()
	for _, p := range programs {
		if slices.Contains(names, p.name) && !c.has(p) {
			if err := c.build(ctx, p); err != nil {
				return "", fmt.Errorf("build %s %s: %w", p.name, p.module.version, err)
			}
		}
	}
	return c.dir, nil
}
