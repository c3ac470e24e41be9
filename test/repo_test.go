// SPDX-License-Identifier: Apache-2.0

// Package test holds the repository's own rules: what is agreed about layout,
// imports, comments and documents, as tests that name the file to mend.
package test

import (
	"bytes"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

// tree is the repository's text files by path.
type tree map[string]string

// rule is one agreement: check returns a line per violation, each starting
// with the path to mend.
type rule struct {
	name  string
	check func(tree) []string
	bad   map[string]tree // trees that break it, by how their only violation starts
	good  tree            // close to them, but right
}

// TestRepository checks every rule against this repository.
func TestRepository(t *testing.T) {
	repo := load(t, "..")
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			for _, violation := range r.check(repo) {
				t.Error(violation)
			}
		})
	}
}

// TestRulesCanFail checks every rule against small trees that break it and one
// that does not.
func TestRulesCanFail(t *testing.T) {
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			for want, bad := range r.bad {
				if got := r.check(bad); len(got) != 1 || !strings.HasPrefix(got[0], want) {
					t.Errorf("bad tree: got %q, want one violation that starts %q", got, want)
				}
			}
			if got := r.check(r.good); len(got) != 0 {
				t.Errorf("good tree: got %q, want none", got)
			}
		})
	}
}

// load reads the text files below dir. What git ignores by our .gitignore and
// binary files are left out.
func load(t *testing.T, dir string) tree {
	t.Helper()
	files := tree{}
	root := os.DirFS(dir)
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name == ".git" || name == "out" {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() || name == ".git" { // a worktree's is a file
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		if bytes.IndexByte(text[:min(len(text), 8000)], 0) < 0 {
			files[name] = string(text)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("read repository: %v", err)
	}
	return files
}

// paths lists the tree's paths for which keep says yes, sorted.
func (tr tree) paths(keep func(string) bool) []string {
	var out []string
	for name := range tr {
		if keep(name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// exists tells whether name is a file or a folder of the tree.
func (tr tree) exists(name string) bool {
	if _, ok := tr[name]; ok || name == "." {
		return true
	}
	return len(tr.paths(func(p string) bool { return strings.HasPrefix(p, name+"/") })) > 0
}

func isGo(name string) bool { return path.Ext(name) == ".go" }

func isC(name string) bool { return path.Ext(name) == ".c" || path.Ext(name) == ".h" }

func isCode(name string) bool { return isGo(name) || isC(name) }

func isDoc(name string) bool { return path.Ext(name) == ".md" }

func isTest(name string) bool { return strings.HasSuffix(name, "_test.go") }

// isGenerated follows Go's convention for generated files.
func isGenerated(text string) bool {
	head, _, _ := strings.Cut(text, "\n")
	return strings.HasPrefix(head, "// Code generated ") && strings.HasSuffix(head, " DO NOT EDIT.")
}
