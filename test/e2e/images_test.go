// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/temper-sched/temper/internal/bench/spin"
)

// podImage is what the tests' pods run: the spinner, the sandbox's process, and
// the guest's own programs where a pod mounts its /usr.
const podImage = "localhost/pod:1"

// writePodImage writes podImage as an archive below dir. nodeProgram is the
// command node.
func writePodImage(t *testing.T, dir, nodeProgram string) {
	t.Helper()
	program, err := os.ReadFile(nodeProgram)
	if err != nil {
		t.Fatal(err)
	}
	layer := podLayer(t, map[string][]byte{
		"node": program, "spin": spin.Program(), "etc/passwd": []byte("root:x:0:0:root:/:/bin/false\n"),
	})
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer)), nil })
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		t.Fatal(err)
	}
	img, err = mutate.ConfigFile(img, &v1.ConfigFile{
		Architecture: "amd64", OS: "linux", Config: v1.Config{Entrypoint: []string{"/node", "pause"}},
		RootFS: v1.RootFS{Type: "layers", DiffIDs: diffIDs(t, img)},
	})
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(podImage)
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.WriteToFile(filepath.Join(dir, "pod.tar"), tag, img); err != nil {
		t.Fatal(err)
	}
}

func diffIDs(t *testing.T, img v1.Image) []v1.Hash {
	t.Helper()
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	return c.RootFS.DiffIDs
}

// podLayer has the files, and the links of a merged /usr.
func podLayer(t *testing.T, files map[string][]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(h *tar.Header, content []byte) {
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range files {
		add(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content))}, content)
	}
	for _, dir := range []string{"usr", "tmp"} {
		add(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o777}, nil)
	}
	for _, link := range []string{"bin", "lib", "lib64"} {
		add(&tar.Header{Typeflag: tar.TypeSymlink, Name: link, Linkname: "usr/" + link}, nil)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
