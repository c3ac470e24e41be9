// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

type object = map[string]any

// fakeAPI plays the API server, the DaemonSet's controller and the agents: a
// tree of objects by path, and what follows from a change to one. An agent's
// answer is an object, too.
type fakeAPI struct {
	mu      sync.Mutex
	objects map[string]object
	refused []string // "VERB PATH": who asks may not
	denied  []string // "verb resource": the agent may not
	deaf    bool     // agents answer, and heed nothing
	leaves  string   // a node that is removed as soon as it was patched
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	code, answer := f.answer(r)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(answer) // the client that does not listen fails by itself
}

func (f *fakeAPI) answer(r *http.Request) (int, object) {
	at := r.URL.Path
	if slices.Contains(f.refused, r.Method+" "+at) {
		return failed403(at)
	}
	var body object
	if r.Body != nil {
		json.NewDecoder(r.Body).Decode(&body) // none is none
	}
	found, ok := f.objects[strings.TrimSuffix(at, "/status")]
	switch {
	case r.Method == http.MethodPost && path.Base(at) == "subjectaccessreviews":
		return http.StatusCreated, f.review(body)
	case r.Method == http.MethodGet && f.objects[at] != nil:
		return http.StatusOK, f.read(at)
	case r.Method == http.MethodGet && slices.Contains(collections, path.Base(at)):
		return http.StatusOK, object{"items": f.list(at, r.URL.Query().Get("labelSelector"))}
	case r.Method == http.MethodPatch && ok:
		merge(found, body)
		f.heed(at)
		return http.StatusOK, found
	case r.Method == http.MethodDelete && ok:
		f.remove(at)
		return http.StatusOK, object{"kind": "Status", "status": "Success"}
	}
	return http.StatusNotFound, object{"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": at + " not found"}
}

func failed403(at string) (int, object) {
	return http.StatusForbidden, object{
		"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "you may not read " + at,
	}
}

// collections are the kinds that this cluster knows; it has no Prometheus.
var collections = []string{
	"daemonsets", "pods", "services", "clusterrolebindings", "clusterroles", "rolebindings", "roles",
	"validatingadmissionpolicybindings", "validatingadmissionpolicies", "priorityclasses", "resourcequotas",
	"networkpolicies", "configmaps", "serviceaccounts", "namespaces", "nodes", "secrets",
}

func (f *fakeAPI) list(at, selector string) []object {
	items := []object{}
	for _, name := range slices.Sorted(maps.Keys(f.objects)) {
		in := path.Dir(name) == at
		if at == "/api/v1/pods" { // of all namespaces
			in, _ = path.Match("/api/v1/namespaces/*/pods/*", name)
		}
		if in && selected(f.objects[name], selector) {
			items = append(items, f.objects[name])
		}
	}
	return items
}

func selected(o object, selector string) bool {
	metadata, _ := o["metadata"].(object)
	labels, _ := metadata["labels"].(object)
	key, value, wanted := strings.Cut(selector, "=")
	return !wanted || labels[key] == value
}

// read is what is at the path. An agent's counters have moved on since it was
// last asked.
func (f *fakeAPI) read(at string) object {
	o := f.objects[at]
	if stats, ok := o["stats"].(object); ok {
		second := float64(time.Second)
		stats["at_ns"] = stats["at_ns"].(float64) + second
		for _, cpu := range stats["cpus"].([]any) {
			buckets := cpu.(object)["buckets_ns"].([]any)
			buckets[0] = buckets[0].(float64) + second
		}
	}
	return o
}

// merge is a merge patch, and a strategic one of a list of conditions.
func merge(into, patch object) {
	for key, value := range patch {
		inner, isObject := value.(object)
		old, _ := into[key].(object)
		switch {
		case value == nil:
			delete(into, key)
		case key == "conditions":
			into[key] = conditions(into[key], value.([]any))
		case isObject:
			if old == nil {
				old = object{}
				into[key] = old
			}
			merge(old, inner)
		default:
			into[key] = value
		}
	}
}

func conditions(old any, patch []any) []any {
	kept, _ := old.([]any)
	for _, p := range patch {
		kept = slices.DeleteFunc(kept, func(c any) bool { return c.(object)["type"] == p.(object)["type"] })
		if p.(object)["$patch"] != "delete" {
			kept = append(kept, p)
		}
	}
	return kept
}

// heed does as an agent does whose node was patched.
func (f *fakeAPI) heed(at string) {
	if path.Base(at) == f.leaves {
		delete(f.objects, at)
		return
	}
	report := f.objects[reportOf(path.Base(at))]
	if report == nil || f.deaf {
		return
	}
	metadata := f.objects[at]["metadata"].(object)
	annotations, _ := metadata["annotations"].(object)
	now := object{"engine": "attached", "reason": "Attached", "message": "", "state": object{"attached": true}}
	if annotations["temper.dev/safe-mode"] == "true" {
		now = object{"engine": "safe", "reason": "SafeMode", "message": "the node's annotation asks for it", "state": object{"attached": false}}
	}
	merge(report, now)
	merge(metadata, object{"labels": object{"temper.dev/engine": now["engine"]}})
}

func reportOf(node string) string { return agents + "temper-agent-" + node + ":9464/proxy/status" }

const agents = "/api/v1/namespaces/temper-system/pods/"

// remove deletes the object. Agents go with their DaemonSet.
func (f *fakeAPI) remove(at string) {
	delete(f.objects, at)
	if path.Base(path.Dir(at)) == "daemonsets" {
		maps.DeleteFunc(f.objects, func(name string, _ object) bool { return strings.HasPrefix(name, agents) })
	}
}

func (f *fakeAPI) review(asked object) object {
	of := asked["spec"].(object)["resourceAttributes"].(object)
	resource := of["resource"].(string)
	if sub := of["subresource"].(string); sub != "" {
		resource += "/" + sub
	}
	return object{"status": object{"allowed": !slices.Contains(f.denied, of["verb"].(string)+" "+resource)}}
}
