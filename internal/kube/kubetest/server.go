// SPDX-License-Identifier: Apache-2.0

// Package kubetest is what the agent needs of an API server: pods and nodes to
// list and watch, a node to patch, Events to write. It lives in the process of
// a test or a measurement and can be away. What a real server makes of the agent
// is tested in test/kube.
package kubetest

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
	"time"
)

// Server is the API server.
type Server struct {
	address string

	mu       sync.Mutex
	server   *http.Server // nil while away
	version  int
	objects  map[string]Object // by path: pods/UID, nodes/NAME
	history  []change
	grown    chan struct{} // closed when history grows
	told     map[string]time.Time
	events   []Event
	requests map[string]int // by what they were
}

// Object is an API object as JSON makes it.
type Object = map[string]any

type change struct {
	version int
	path    string
	kind    string // ADDED, MODIFIED, DELETED
	object  Object
}

// Event is what one looks for in an Event.
type Event struct {
	Kind, Namespace, Name string // of what it is about
	Reason, Message, Type string
	Count                 int

	own string // its own name
}

// New returns a server that serves on the loopback once it is started.
func New() *Server {
	return &Server{address: "127.0.0.1:0", version: 1, objects: map[string]Object{}, grown: make(chan struct{}), told: map[string]time.Time{}, requests: map[string]int{}}
}

// Start serves, at the same address as before.
func (a *Server) Start() error {
	listener, err := net.Listen("tcp", a.address)
	if err != nil {
		return fmt.Errorf("start API server: %w", err)
	}
	server := &http.Server{Handler: a.handler(), ReadHeaderTimeout: time.Minute}
	a.mu.Lock()
	a.address, a.server = listener.Addr().String(), server
	a.mu.Unlock()
	go func() { _ = server.Serve(listener) }()
	return nil
}

// Stop cuts every connection. What it knows stays.
func (a *Server) Stop() {
	a.mu.Lock()
	server := a.server
	a.server = nil
	a.mu.Unlock()
	if server != nil {
		_ = server.Close()
	}
}

// Kubeconfig writes the file by which clients find it into dir.
func (a *Server) Kubeconfig(dir string) (string, error) {
	file := filepath.Join(dir, "kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: fake, cluster: {server: "http://%s"}}]
contexts: [{name: fake, context: {cluster: fake, user: agent}}]
users: [{name: agent, user: {}}]
current-context: fake
`, a.address)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("write kubeconfig: %w", err)
	}
	return file, nil
}

// Put makes or replaces an object.
func (a *Server) Put(path string, o Object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.putLocked(path, o)
}

func (a *Server) putLocked(path string, o Object) Object {
	kind := "ADDED"
	if _, ok := a.objects[path]; ok {
		kind = "MODIFIED"
	}
	return a.record(kind, path, o)
}

// Drop removes an object.
func (a *Server) Drop(path string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if o, ok := a.objects[path]; ok {
		a.record("DELETED", path, o)
		delete(a.objects, path)
	}
}

// Told is when a watcher was sent the last event of an object; zero if none was.
func (a *Server) Told(path string) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.told[path]
}

func (a *Server) tells(path string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.told[path] = time.Now()
}

// record gives an object its version. Versions of an object share nothing, so
// that one may be written to a watcher while the next is made.
func (a *Server) record(kind, path string, o Object) Object {
	a.version++
	o = clone(o)
	Inner(o, "metadata")["resourceVersion"] = strconv.Itoa(a.version)
	a.objects[path] = o
	a.history = append(a.history, change{a.version, path, kind, o})
	close(a.grown)
	a.grown = make(chan struct{})
	return o
}

// Edit changes an object that is there.
func (a *Server) Edit(path string, by func(Object)) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	o, ok := a.objects[path]
	if !ok {
		return fmt.Errorf("edit object %s: there is none", path)
	}
	o = clone(o)
	by(o)
	a.putLocked(path, o)
	return nil
}

// Get returns a copy of an object, nil if there is none.
func (a *Server) Get(path string) Object {
	a.mu.Lock()
	defer a.mu.Unlock()
	if o, ok := a.objects[path]; ok {
		return clone(o)
	}
	return nil
}

// Said are the Events so far with that reason.
func (a *Server) Said(reason string) []Event {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(a.events), func(e Event) bool { return e.Reason != reason })
}

// Asked is how many requests there were, watches included.
func (a *Server) Asked() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, count := range a.requests {
		n += count
	}
	return n
}

func (a *Server) count(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests[what]++
}

// clone copies all that can be changed in an object.
func clone(o Object) Object {
	out := make(Object, len(o))
	for key, value := range o {
		out[key] = cloneValue(value)
	}
	return out
}

func cloneValue(value any) any {
	switch v := value.(type) {
	case Object:
		return clone(v)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = cloneValue(v[i])
		}
		return out
	}
	return value
}

// Inner is the mapping at that path inside an object, made if missing.
func Inner(o Object, path ...string) Object {
	for _, name := range path {
		next, ok := o[name].(Object)
		if !ok {
			next = Object{}
			o[name] = next
		}
		o = next
	}
	return o
}

// value is what an object has at that path, nil if nothing.
func value(o Object, path ...string) any {
	for _, name := range path[:len(path)-1] {
		o, _ = o[name].(Object)
	}
	return o[path[len(path)-1]]
}

func (a *Server) handler() http.Handler {
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
	answer(w, code, Object{"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message})
}

func answer(w http.ResponseWriter, code int, o Object) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(o)
}

// serve lists or watches what has the one value that is asked for. Asking for
// those of all nodes is refused, as the agent must not.
func (a *Server) serve(w http.ResponseWriter, r *http.Request, prefix, kind string, field ...string) {
	q := r.URL.Query()
	want, ok := strings.CutPrefix(q.Get("fieldSelector"), strings.Join(field, ".")+"=")
	if !ok {
		a.count("unselected " + r.URL.Path)
		refuse(w, http.StatusForbidden, "Forbidden", "only one node's")
		return
	}
	chosen := func(path string, o Object) bool {
		return strings.HasPrefix(path, prefix) && value(o, field...) == want
	}
	if q.Get("watch") != "true" {
		a.count("list " + prefix)
		answer(w, http.StatusOK, a.list(kind, chosen))
		return
	}
	a.count("watch " + prefix)
	a.watch(w, r, chosen)
}

func (a *Server) list(kind string, chosen func(string, Object) bool) Object {
	a.mu.Lock()
	defer a.mu.Unlock()
	items := []Object{}
	for _, path := range slices.Sorted(maps.Keys(a.objects)) {
		if o := a.objects[path]; chosen(path, o) {
			items = append(items, o)
		}
	}
	return Object{
		"apiVersion": "v1", "kind": kind + "List", "items": items,
		"metadata": Object{"resourceVersion": strconv.Itoa(a.version)},
	}
}

// watch streams what happened since the version that the client knows.
func (a *Server) watch(w http.ResponseWriter, r *http.Request, chosen func(string, Object) bool) {
	q := r.URL.Query()
	since, _ := strconv.Atoi(q.Get("resourceVersion"))
	seconds, _ := strconv.Atoi(q.Get("timeoutSeconds"))
	end := time.After(time.Duration(max(seconds, 1)) * time.Second)
	w.Header().Set("Content-Type", streamType)
	out := newEventStream(w)
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	for {
		changes, grown := a.since(since)
		for _, c := range changes {
			since = c.version
			if chosen(c.path, c.object) {
				if err := out.write(c.kind, c.object); err != nil {
					return
				}
				a.tells(c.path) // before it is: what is counted from here leaves nothing out
				_ = http.NewResponseController(w).Flush()
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

func (a *Server) since(version int) ([]change, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at, _ := slices.BinarySearchFunc(a.history, version+1, func(c change, v int) int { return c.version - v })
	return a.history[at:], a.grown
}
