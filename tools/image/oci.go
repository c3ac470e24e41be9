// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// archive returns an OCI layout in a tar with one image for all platforms.
func archive(name, tag string, platforms []platform) ([]byte, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range platforms {
		if err := checkSize(p.files); err != nil {
			return nil, fmt.Errorf("build image for %s: %w", p.arch, err)
		}
		image, err := imageOf(p, tag)
		if err != nil {
			return nil, fmt.Errorf("build image for %s: %w", p.arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: p.arch}},
		})
	}
	dir, err := os.MkdirTemp("", "temper-layout-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return nil, fmt.Errorf("write layout: %w", err)
	}
	err = path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          fullName(name) + ":" + tag,
		"org.opencontainers.image.ref.name": tag,
	}))
	if err != nil {
		return nil, fmt.Errorf("write layout: %w", err)
	}
	return pack(dir)
}

// fullName is the name under which a kubelet looks for an image.
func fullName(name string) string {
	host, rest, found := strings.Cut(name, "/")
	switch {
	case !found:
		return "docker.io/library/" + name
	case strings.ContainsAny(host, ".:") || host == "localhost":
		return name
	}
	return "docker.io/" + host + "/" + rest
}

func imageOf(p platform, tag string) (v1.Image, error) {
	root, err := rootfs(p.files)
	if err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(root)), nil }
	layer, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	image = mutate.ConfigMediaType(image, types.OCIConfigJSON)
	image, err = mutate.ConfigFile(image, &v1.ConfigFile{
		OS:           "linux",
		Architecture: p.arch,
		RootFS:       v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User:       "0:0",
			Entrypoint: []string{"/" + commands[0]},
			Env:        []string{"PATH=/"},
			WorkingDir: "/",
			Labels: map[string]string{
				"org.opencontainers.image.title":    commands[0],
				"org.opencontainers.image.version":  tag,
				"org.opencontainers.image.source":   "https://github.com/temper-sched/temper",
				"org.opencontainers.image.licenses": "Apache-2.0 AND GPL-2.0-only",
			},
		},
	})
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(image, layer)
}

// rootfs is the image's only layer: programs of root's, of no date.
func rootfs(files []file) ([]byte, error) {
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	for _, f := range files {
		if err := entry(tw, f.name, 0o755, f.data); err != nil {
			return nil, err
		}
	}
	if err := tw.Close(); err != nil { // first: it writes the end
		return nil, err
	}
	return buf.Bytes(), nil
}

// pack writes the files below dir, in the order of their paths.
func pack(dir string) ([]byte, error) {
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return entry(tw, filepath.ToSlash(name), 0o644, data)
	})
	if err != nil {
		return nil, fmt.Errorf("pack layout: %w", err)
	}
	if err := tw.Close(); err != nil { // first: it writes the end
		return nil, err
	}
	return buf.Bytes(), nil
}

func entry(tw *tar.Writer, name string, mode int64, data []byte) error {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data)), Format: tar.FormatUSTAR}
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	_, err := tw.Write(data)
	return err
}
