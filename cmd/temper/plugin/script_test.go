// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.yaml.in/yaml/v3"
)

var update = flag.Bool("update", false, "rewrite what scripts compare output with")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		Name: func() {
			o := Options{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Version: "0.2.0", Poll: time.Millisecond}
			os.Exit(Execute(context.Background(), o, os.Args[1:]))
		},
	})
}

// TestScripts runs the subcommands against a cluster of three nodes: of a the
// agent is attached, of b it is away, and c never had one.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			objects, err := cluster()
			if err != nil {
				return err
			}
			api := &fakeAPI{objects: objects}
			server := httptest.NewServer(api)
			env.Defer(server.Close)
			env.Values["api"] = api
			env.Setenv("KUBECONFIG", filepath.Join(env.WorkDir, "kubeconfig"))
			return os.WriteFile(env.Getenv("KUBECONFIG"), fmt.Appendf(nil, kubeconfig, server.URL), 0o600)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"expect": expect, "set": set, "gone": gone, "refuse": refuse, "allow": allow, "deny": deny, "deaf": deaf, "leave": leave,
		},
	})
}

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: here, cluster: {server: %q}}]
contexts: [{name: here, context: {cluster: here, namespace: shop}}]
current-context: here
`

// cluster reads the objects by their paths.
func cluster() (map[string]object, error) {
	now := time.Now()
	ago := template.FuncMap{"ago": func(text string) (string, error) {
		d, err := time.ParseDuration(text)
		return now.Add(-d).UTC().Format(time.RFC3339), err
	}}
	t, err := template.New("cluster.yaml").Funcs(ago).ParseFiles("testdata/cluster.yaml")
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	if err := t.Execute(&text, nil); err != nil {
		return nil, err
	}
	return objectsOf(text.Bytes())
}

func objectsOf(text []byte) (objects map[string]object, err error) {
	var tree any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		return nil, err
	}
	asJSON, err := json.Marshal(tree)
	if err == nil {
		err = json.Unmarshal(asJSON, &objects)
	}
	return objects, err
}

// change changes the cluster between two requests.
func change(ts *testscript.TestScript, how func(*fakeAPI)) {
	f := ts.Value("api").(*fakeAPI)
	f.mu.Lock()
	defer f.mu.Unlock()
	how(f)
}

// expect CODE COMMAND... runs a command that must exit with that code.
func expect(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: expect CODE COMMAND...")
	}
	got := "0"
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		got = strings.TrimPrefix(err.Error(), "exit status ")
	}
	if got != args[0] {
		ts.Fatalf("exit code %s, want %s", got, args[0])
	}
}

// set FILE merges the objects in it into the cluster's.
func set(ts *testscript.TestScript, _ bool, args []string) {
	objects, err := objectsOf([]byte(ts.ReadFile(args[0])))
	ts.Check(err)
	change(ts, func(f *fakeAPI) {
		for at, o := range objects {
			if f.objects[at] == nil {
				f.objects[at] = object{}
			}
			merge(f.objects[at], o)
		}
	})
}

// gone PATH removes the object.
func gone(ts *testscript.TestScript, _ bool, args []string) {
	change(ts, func(f *fakeAPI) {
		if f.objects[args[0]] == nil {
			ts.Fatalf("there is no %s", args[0])
		}
		f.remove(args[0])
	})
}

// refuse VERB PATH makes the API server forbid it.
func refuse(ts *testscript.TestScript, _ bool, args []string) {
	change(ts, func(f *fakeAPI) { f.refused = append(f.refused, strings.Join(args, " ")) })
}

// allow takes back what refuse said.
func allow(ts *testscript.TestScript, _ bool, _ []string) {
	change(ts, func(f *fakeAPI) { f.refused = nil })
}

// deny VERB RESOURCE takes the right from the agent.
func deny(ts *testscript.TestScript, _ bool, args []string) {
	change(ts, func(f *fakeAPI) { f.denied = append(f.denied, strings.Join(args, " ")) })
}

// deaf makes agents heed nothing.
func deaf(ts *testscript.TestScript, _ bool, _ []string) {
	change(ts, func(f *fakeAPI) { f.deaf = true })
}

// leave NODE removes it as soon as it is asked for something.
func leave(ts *testscript.TestScript, _ bool, args []string) {
	change(ts, func(f *fakeAPI) { f.leaves = args[0] })
}
