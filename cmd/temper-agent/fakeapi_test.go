// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// fakeAPI is what the agent needs of an API server: pods and nodes to list and
// watch, a node to patch, Events to write. It lives in the test's process and
// can be away. What the real one makes of the agent is tested in test/kube.
type fakeAPI struct {
	address string

	mu       sync.Mutex
	server   *http.Server // nil while away
	version  int
	objects  map[string]object // by path: pods/UID, nodes/NAME
	history  []change
	grown    chan struct{} // closed when history grows
	events   []fakeEvent
	requests map[string]int // by what they were
}

// object is an API object as JSON makes it.
type object = map[string]any

type change struct {
	version int
	path    string
	kind    string // ADDED, MODIFIED, DELETED
	object  object
}

// fakeEvent is what a test looks for in an Event.
type fakeEvent struct {
	Kind, Namespace, Name string // of what it is about
	Reason, Message, Type string
	Count                 int

	own string // its own name
}

func newFakeAPI(t *testing.T) *fakeAPI {
	t.Helper()
	a := &fakeAPI{address: "127.0.0.1:0", version: 1, objects: map[string]object{}, grown: make(chan struct{}), requests: map[string]int{}}
	a.start(t)
	t.Cleanup(a.stop)
	return a
}

// start serves, at the same address as before.
func (a *fakeAPI) start(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", a.address)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: a.handler()}
	a.mu.Lock()
	a.address, a.server = listener.Addr().String(), server
	a.mu.Unlock()
	go func() { _ = server.Serve(listener) }()
}

// stop cuts every connection. What it knows stays.
func (a *fakeAPI) stop() {
	a.mu.Lock()
	server := a.server
	a.server = nil
	a.mu.Unlock()
	if server != nil {
		_ = server.Close()
	}
}

// kubeconfig writes the file by which clients find it.
func (a *fakeAPI) kubeconfig(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: fake, cluster: {server: "http://%s"}}]
contexts: [{name: fake, context: {cluster: fake, user: agent}}]
users: [{name: agent, user: {}}]
current-context: fake
`, a.address)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// put makes or replaces an object; drop removes it.
func (a *fakeAPI) put(path string, o object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.putLocked(path, o)
}

func (a *fakeAPI) putLocked(path string, o object) object {
	kind := "ADDED"
	if _, ok := a.objects[path]; ok {
		kind = "MODIFIED"
	}
	return a.record(kind, path, o)
}

func (a *fakeAPI) drop(path string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if o, ok := a.objects[path]; ok {
		a.record("DELETED", path, o)
		delete(a.objects, path)
	}
}

// record gives an object its version. Versions of an object share nothing, so
// that one may be written to a watcher while the next is made.
func (a *fakeAPI) record(kind, path string, o object) object {
	a.version++
	o = clone(o)
	inner(o, "metadata")["resourceVersion"] = strconv.Itoa(a.version)
	a.objects[path] = o
	a.history = append(a.history, change{a.version, path, kind, o})
	close(a.grown)
	a.grown = make(chan struct{})
	return o
}

// edit changes an object.
func (a *fakeAPI) edit(t *testing.T, path string, by func(object)) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	o, ok := a.objects[path]
	if !ok {
		t.Fatalf("no object %s", path)
	}
	o = clone(o)
	by(o)
	a.putLocked(path, o)
}

func (a *fakeAPI) get(path string) object {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.objects[path]
}

// said are the Events so far with that reason.
func (a *fakeAPI) said(reason string) []fakeEvent {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(a.events), func(e fakeEvent) bool { return e.Reason != reason })
}

// asked is how many requests there were, watches included.
func (a *fakeAPI) asked() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, count := range a.requests {
		n += count
	}
	return n
}

func (a *fakeAPI) count(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests[what]++
}

func clone(o object) object {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	var out object
	if err := json.Unmarshal(text, &out); err != nil {
		panic(err)
	}
	return out
}

// inner is the mapping at that path inside an object, made if missing.
func inner(o object, path ...string) object {
	for _, name := range path {
		next, ok := o[name].(object)
		if !ok {
			next = object{}
			o[name] = next
		}
		o = next
	}
	return o
}

func (a *fakeAPI) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/pods", func(w http.ResponseWriter, r *http.Request) {
		a.serve(w, r, "pods/", "Pod", "spec", "nodeName")
	})
	mux.HandleFunc("GET /api/v1/nodes", func(w http.ResponseWriter, r *http.Request) {
		a.serve(w, r, "nodes/", "Node", "metadata", "name")
	})
	mux.HandleFunc("PATCH /api/v1/nodes/{name}", a.patchNode)
	mux.HandleFunc("PATCH /api/v1/nodes/{name}/status", a.patchNode)
	mux.HandleFunc("POST /api/v1/namespaces/{namespace}/events", a.postEvent)
	mux.HandleFunc("PATCH /api/v1/namespaces/{namespace}/events/{name}", a.patchEvent)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		a.count("unknown " + r.Method + " " + r.URL.Path)
		refuse(w, http.StatusForbidden, "Forbidden", "the agent has no business here")
	})
	return mux
}

// refuse answers as an API server does.
func refuse(w http.ResponseWriter, code int, reason, message string) {
	answer(w, code, object{"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message})
}

func answer(w http.ResponseWriter, code int, o object) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(o)
}

// serve lists or watches what has the one value that is asked for. Asking for
// those of all nodes is refused, as the agent must not.
func (a *fakeAPI) serve(w http.ResponseWriter, r *http.Request, prefix, kind string, field ...string) {
	q := r.URL.Query()
	want, ok := strings.CutPrefix(q.Get("fieldSelector"), strings.Join(field, ".")+"=")
	if !ok {
		a.count("unselected " + r.URL.Path)
		refuse(w, http.StatusForbidden, "Forbidden", "only one node's")
		return
	}
	chosen := func(path string, o object) bool {
		return strings.HasPrefix(path, prefix) && inner(clone(o), field[0])[field[1]] == want
	}
	if q.Get("watch") != "true" {
		a.count("list " + prefix)
		answer(w, http.StatusOK, a.list(kind, chosen))
		return
	}
	a.count("watch " + prefix)
	a.watch(w, r, chosen)
}

func (a *fakeAPI) list(kind string, chosen func(string, object) bool) object {
	a.mu.Lock()
	defer a.mu.Unlock()
	items := []object{}
	for _, path := range slices.Sorted(maps.Keys(a.objects)) {
		if o := a.objects[path]; chosen(path, o) {
			items = append(items, o)
		}
	}
	return object{
		"apiVersion": "v1", "kind": kind + "List", "items": items,
		"metadata": object{"resourceVersion": strconv.Itoa(a.version)},
	}
}

// watch streams what happened since the version that the client knows.
func (a *fakeAPI) watch(w http.ResponseWriter, r *http.Request, chosen func(string, object) bool) {
	q := r.URL.Query()
	since, _ := strconv.Atoi(q.Get("resourceVersion"))
	seconds, _ := strconv.Atoi(q.Get("timeoutSeconds"))
	end := time.After(time.Duration(max(seconds, 1)) * time.Second)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	out := json.NewEncoder(w)
	for {
		_ = http.NewResponseController(w).Flush()
		changes, grown := a.since(since)
		for _, c := range changes {
			since = c.version
			if chosen(c.path, c.object) {
				_ = out.Encode(object{"type": c.kind, "object": c.object})
			}
		}
		if len(changes) > 0 {
			continue
		}
		select {
		case <-grown:
		case <-end:
			return
		case <-r.Context().Done():
			return
		}
	}
}

func (a *fakeAPI) since(version int) ([]change, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at, _ := slices.BinarySearchFunc(a.history, version+1, func(c change, v int) int { return c.version - v })
	return a.history[at:], a.grown
}
