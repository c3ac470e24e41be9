// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

func examplePlatforms() []platform {
	return []platform{
		{"amd64", []file{{"temper-agent", []byte("agent for amd64")}, {"temper", []byte("node command")}}},
		{"arm64", []file{{"temper-agent", []byte("agent for arm64")}, {"temper", []byte("node command")}}},
	}
}

func TestArchiveIsReproducible(t *testing.T) {
	first, second := mustArchive(t), mustArchive(t)
	if !bytes.Equal(first, second) {
		t.Error("two archives of the same files differ")
	}
}

// TestArchiveIsAnImage reads the archive back as a registry client would.
func TestArchiveIsAnImage(t *testing.T) {
	path, err := layout.FromPath(unpack(t, mustArchive(t)))
	if err != nil {
		t.Fatal(err)
	}
	outer, err := path.ImageIndex()
	if err != nil {
		t.Fatal(err)
	}
	top, err := outer.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if got := top.Manifests[0].Annotations["io.containerd.image.name"]; got != "docker.io/library/temper-agent:1.2.3" {
		t.Errorf("imported as %q", got)
	}
	index, err := outer.ImageIndex(top.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range examplePlatforms() {
		if got := manifest.Manifests[i].Platform.String(); got != "linux/"+want.arch {
			t.Errorf("platform %d is %s", i, got)
		}
		image, err := index.Image(manifest.Manifests[i].Digest)
		if err != nil {
			t.Fatal(err)
		}
		layers, err := image.Layers()
		if err != nil {
			t.Fatal(err)
		}
		root, err := layers[0].Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		if got := contents(t, root); got["temper-agent"] != string(want.files[0].data) || len(got) != 2 {
			t.Errorf("files for %s: %q", want.arch, got)
		}
	}
}

func TestLargeImagesAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		bytes int
		ok    bool
	}{
		"at the limit":    {maxSize, true},
		"above it by one": {maxSize + 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			half := tc.bytes / 2
			files := []file{{"temper-agent", make([]byte, half)}, {"temper", make([]byte, tc.bytes-half)}}
			if err := checkSize(files); (err == nil) != tc.ok {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestFullName(t *testing.T) {
	for name, want := range map[string]string{
		"temper-agent":               "docker.io/library/temper-agent",
		"someone/temper-agent":       "docker.io/someone/temper-agent",
		"registry.example/a/b":       "registry.example/a/b",
		"localhost/temper-agent":     "localhost/temper-agent",
		"registry:5000/temper-agent": "registry:5000/temper-agent",
	} {
		if got := fullName(name); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}

// TestBillOfMaterials takes this test's own binary for the image's program.
func TestBillOfMaterials(t *testing.T) {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	text, err := sbom("temper-agent", "1.2.3", []platform{{"amd64", []file{{"temper-agent", self}}}})
	if err != nil {
		t.Fatal(err)
	}
	var doc document
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range doc.Packages {
		names = append(names, p.Name)
	}
	for _, want := range []string{"temper-agent", "stdlib", "github.com/google/go-containerregistry"} {
		if !slices.Contains(names, want) {
			t.Errorf("lacks %s: %q", want, names)
		}
	}
	if len(doc.Relationship) != len(doc.Packages) {
		t.Errorf("%d packages, %d relationships", len(doc.Packages), len(doc.Relationship))
	}
}

func TestVersionIsTheChart(t *testing.T) {
	version, err := chartVersion(filepath.Join("../..", chartFile))
	if err != nil || strings.Count(version, ".") != 2 {
		t.Errorf("version %q, error %v", version, err)
	}
}

func mustArchive(t *testing.T) []byte {
	t.Helper()
	data, err := archive("temper-agent", "1.2.3", examplePlatforms())
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// contents asks for more than Go's reader: GNU tar wants the two empty blocks at
// the end.
func contents(t *testing.T, r io.Reader) map[string]string {
	t.Helper()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if end := make([]byte, 1024); len(text)%512 != 0 || !bytes.HasSuffix(text, end) {
		t.Errorf("the archive, %d bytes, has no end", len(text))
	}
	out := map[string]string{}
	for tr := tar.NewReader(bytes.NewReader(text)); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		out[h.Name] = string(data)
	}
}

func unpack(t *testing.T, archive []byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range contents(t, bytes.NewReader(archive)) {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
