// SPDX-License-Identifier: Apache-2.0

package test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const module = "github.com/temper-sched/temper/"

// imports says which packages of ours each place in the architecture may
// import. A package belongs to the place it is or lies below, and one that has
// none yet needs one here. Commands may import everything; nothing imports them.
var imports = map[string][]string{
	// Vocabulary.
	"internal/tier":     {},
	"internal/topology": {},
	// The pure core.
	"internal/policy": {"internal/tier", "internal/topology"},
	// Adapters: the kernel's interfaces, files and guests. Never each other.
	"internal/sched":  {"internal/policy", "internal/tier", "internal/topology"},
	"internal/cgroup": {"internal/policy", "internal/tier", "internal/topology"},
	"internal/config": {"internal/policy", "internal/tier", "internal/topology"},
	"internal/kube":   {"internal/policy", "internal/tier"},
	// What tests and measurements have for an API server.
	"internal/kube/kubetest": {},
	// And for an agent.
	"internal/agent/agenttest": {},
	"internal/metric":          {"internal/tier"},
	"internal/guest":           {"internal/topology"},
	"clock":                    {},
	// Loops.
	"internal/agent": {
		"internal/sched", "internal/cgroup", "internal/config", "internal/kube", "internal/metric",
		"internal/policy", "internal/tier", "internal/topology",
	},
	"internal/bench": {
		"internal/guest", "internal/sched", "internal/cgroup", "internal/config", "internal/kube/kubetest", "internal/agent/agenttest",
		"internal/policy", "internal/tier", "internal/topology", "clock",
	},
}

// owners says which package alone, with those below it, may import a library,
// and why.
var owners = []struct{ library, owner, why string }{
	{"github.com/cilium/ebpf", "internal/sched", "one package speaks BPF"},
	{"k8s.io/", "internal/kube", "one package speaks Kubernetes"},
	{"sigs.k8s.io/", "internal/kube", "one package speaks Kubernetes"},
}

// initAllowed lists files that may have an init function. Registration in
// init hides what a program is made of; keep the list empty if you can.
var initAllowed = []string{}

var vagueNames = []string{"util", "utils", "common", "helper", "helpers", "misc", "manager", "types", "base", "shared"}

// parsed is one Go file's syntax and path; broken files are the compiler's business.
func parsed(tr tree, visit func(name string, file *ast.File)) {
	for _, name := range tr.paths(isGo) {
		file, err := parser.ParseFile(token.NewFileSet(), name, tr[name], parser.ParseComments|parser.SkipObjectResolution)
		if err == nil {
			visit(name, file)
		}
	}
}

func packageDocs(tr tree) []string {
	documented := map[string]bool{}
	parsed(tr, func(name string, file *ast.File) {
		if isTest(name) {
			return
		}
		dir := path.Dir(name)
		documented[dir] = documented[dir] || file.Doc != nil && len(file.Doc.Text()) > 0
	})
	var out []string
	for dir, ok := range documented {
		if !ok {
			out = append(out, dir+": the package has no doc comment")
		}
	}
	return out
}

func packageNames(tr tree) []string {
	var out []string
	parsed(tr, func(name string, file *ast.File) {
		if slices.Contains(vagueNames, file.Name.Name) {
			out = append(out, fmt.Sprintf("%s: package %s names no noun of ours", name, file.Name.Name))
		}
	})
	return out
}

func noInit(tr tree) []string {
	var out []string
	parsed(tr, func(name string, file *ast.File) {
		if slices.Contains(initAllowed, name) || isGenerated(tr[name]) {
			return
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				out = append(out, name+": has an init function; build the table in one function instead")
			}
		}
	})
	return out
}

func importDirections(tr tree) []string {
	var out []string
	parsed(tr, func(name string, file *ast.File) {
		if isTest(name) || !strings.HasPrefix(name, "internal/") {
			return
		}
		from := place(path.Dir(name))
		if from == "" {
			out = append(out, name+": has no place in the import table of test/rules_go_test.go")
			return
		}
		for _, spec := range file.Imports {
			target, ours := strings.CutPrefix(unquote(spec), module)
			if to := place(target); ours && to != from && !slices.Contains(imports[from], to) {
				out = append(out, fmt.Sprintf("%s: imports %s, which the architecture does not allow", name, target))
			}
		}
	})
	return out
}

// place is the entry of the import table that dir is or lies below, "" if none.
func place(dir string) string {
	for ; dir != "."; dir = path.Dir(dir) {
		if _, ok := imports[dir]; ok {
			return dir
		}
	}
	return ""
}

func libraryOwners(tr tree) []string {
	var out []string
	parsed(tr, func(name string, file *ast.File) {
		for _, spec := range file.Imports {
			for _, o := range owners {
				if strings.HasPrefix(unquote(spec), o.library) && !strings.HasPrefix(name, o.owner+"/") {
					out = append(out, fmt.Sprintf("%s: imports %s; only %s may: %s", name, unquote(spec), o.owner, o.why))
				}
			}
		}
	})
	return out
}

func unquote(spec *ast.ImportSpec) string {
	s, _ := strconv.Unquote(spec.Path.Value)
	return s
}

var replaceLine = regexp.MustCompile(`(?m)^\s*replace\b`)

func noReplace(tr tree) []string {
	if replaceLine.MatchString(tr["go.mod"]) {
		return []string{"go.mod: has a replace; `go install` of our commands would ignore it"}
	}
	return nil
}
