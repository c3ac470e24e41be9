// SPDX-License-Identifier: Apache-2.0

// Command image builds the agent's container image, for amd64 and arm64,
// without a container runtime, and beside it a list of what is inside (SPDX):
//
//	go run ./tools/image -o out/temper-agent.tar
//
// The file is an OCI layout in a tar: `ctr images import`, `podman load`,
// `kind load image-archive` and `skopeo copy oci-archive:` take it, and `docker
// load` where Docker keeps images in containerd. Equal source gives equal bytes.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
)

// maxSize is what the files of one platform's image may have together.
const maxSize = 25 << 20

// chartFile tells the version: that of the agent the chart installs.
const chartFile = "deploy/chart/temper/Chart.yaml"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	out := flags.String("o", "out/temper-agent.tar", "the file to write")
	name := flags.String("name", "temper-agent", "the image's name, without its tag")
	tag := flags.String("tag", "", "its tag (default: appVersion of "+chartFile+")")
	arch := flags.String("arch", "amd64,arm64", "for which machines")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *tag == "" {
		version, err := chartVersion(chartFile)
		if err != nil {
			return err
		}
		*tag = version
	}
	if err := os.MkdirAll(filepath.Dir(*out), 0o755); err != nil {
		return err
	}
	var platforms []platform
	for arch := range strings.SplitSeq(*arch, ",") {
		files, err := build(ctx, arch, *tag)
		if err != nil {
			return err
		}
		platforms = append(platforms, platform{arch, files})
	}
	return write(*out, *name, *tag, platforms)
}

// write writes the image and, beside it, what it is made of.
func write(out, name, tag string, platforms []platform) error {
	data, err := archive(name, tag, platforms)
	if err != nil {
		return err
	}
	bill, err := sbom(name, tag, platforms)
	if err != nil {
		return err
	}
	list := strings.TrimSuffix(out, ".tar") + ".spdx.json"
	if err := os.WriteFile(list, bill, 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(out, data, 0o644); err != nil {
		return err
	}
	for _, p := range platforms {
		fmt.Printf("%s:%s linux/%s %.1f MiB\n", name, tag, p.arch, float64(size(p.files))/(1<<20))
	}
	fmt.Printf("%s %.1f MiB, %s\n", out, float64(len(data))/(1<<20), list)
	return nil
}

var appVersion = regexp.MustCompile(`(?m)^appVersion: "?([\w.-]+)"?$`)

func chartVersion(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	m := appVersion.FindSubmatch(text)
	if m == nil {
		return "", fmt.Errorf("read version %s: no appVersion", file)
	}
	return string(m[1]), nil
}
