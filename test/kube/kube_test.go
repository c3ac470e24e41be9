// SPDX-License-Identifier: Apache-2.0

// Package kube_test verifies internal/kube against a real API server.
package kube_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/kube"
	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/tier"
	"github.com/temper-sched/temper/test/kube/plane"
)

const (
	node = "n1"
	// patience is for a machine that has much else to do.
	patience = 90 * time.Second
)

var thresholds = tier.Thresholds{Critical: 1_000_000, Background: 0}

type object = map[string]any

// cluster is a control plane with a node, the agent's rights and priority
// classes, and a client as the agent of the node has one.
type cluster struct {
	*plane.Plane
	t      *testing.T
	client *kube.Client
	heard  chan kube.Snapshot
	last   kube.Snapshot
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{Plane: plane.ForTest(t), t: t, heard: make(chan kube.Snapshot, 1000)}
	c.post("/api/v1/namespaces", object{"metadata": object{"name": "temper-system"}})
	c.post("/api/v1/namespaces/temper-system/serviceaccounts", object{"metadata": object{"name": "temper-agent"}})
	for _, name := range []string{node, "n2"} {
		c.post("/api/v1/nodes", object{"metadata": object{"name": name}})
	}
	for name, value := range map[string]int{"hot": 1_000_000, "cold": -1} {
		c.post("/apis/scheduling.k8s.io/v1/priorityclasses", object{"metadata": object{"name": name}, "value": value})
	}
	c.install()

	config, err := c.KubeconfigOf(c.agentToken())
	if err != nil {
		t.Fatal(err)
	}
	c.client, err = kube.New(kube.Config{Kubeconfig: config, NodeName: node, Thresholds: thresholds, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- c.client.Run(ctx, func(s kube.Snapshot) { c.heard <- s }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return c
}

// install applies what of the released manifests the API server alone knows:
// rights and admission.
func (c *cluster) install() {
	path := map[string]string{
		"ClusterRole":                      "/apis/rbac.authorization.k8s.io/v1/clusterroles",
		"ClusterRoleBinding":               "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
		"ValidatingAdmissionPolicy":        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
		"ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
	}
	applied := map[string]bool{}
	files, _ := filepath.Glob("../../deploy/manifests/*.yaml")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			c.t.Fatal(err)
		}
		for doc := range strings.SplitSeq(string(text), "\n---\n") {
			_, rest, _ := strings.Cut("\n"+doc, "\nkind: ")
			kind, _, _ := strings.Cut(rest, "\n")
			if path[kind] != "" {
				c.post(path[kind], doc)
				applied[kind] = true
			}
		}
	}
	if len(applied) != len(path) {
		c.t.Fatalf("deploy/manifests has only %v of the kinds needed", applied)
	}
	// The API server takes a policy up some time after it has it.
	limit := time.After(patience)
	for tick := time.NewTicker(50 * time.Millisecond); !c.refused(http.MethodPatch, "/api/v1/nodes/n2", object{"metadata": object{"labels": object{"probe": rand.Text()}}}); {
		select {
		case <-tick.C:
		case <-limit:
			c.t.Fatalf("the admission policy is not in force after %v", patience)
		}
	}
}

// refused tells whether the agent may not.
func (c *cluster) refused(method, path string, body any) bool {
	err := c.DoAs(c.t.Context(), c.agentToken(), method, path, body, nil)
	status, ok := errors.AsType[*plane.StatusError](err)
	return ok && (status.Code == http.StatusForbidden || status.Code == http.StatusUnprocessableEntity)
}

func (c *cluster) agentToken() string {
	c.t.Helper()
	token, err := c.Token(c.t.Context(), "temper-system", "temper-agent", node)
	if err != nil {
		c.t.Fatal(err)
	}
	return token
}

func (c *cluster) post(path string, body any) {
	c.t.Helper()
	if err := c.Do(c.t.Context(), http.MethodPost, path, body, nil); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) patch(path string, body any) {
	c.t.Helper()
	if err := c.Do(c.t.Context(), http.MethodPatch, path, body, nil); err != nil {
		c.t.Fatal(err)
	}
}

// until waits for a snapshot that holds.
func (c *cluster) until(what string, holds func(kube.Snapshot) bool) kube.Snapshot {
	c.t.Helper()
	limit := time.After(patience)
	for !holds(c.last) {
		select {
		case c.last = <-c.heard:
		case <-limit:
			c.t.Fatalf("not seen in %v: %s; last %+v", patience, what, c.last)
		}
	}
	return c.last
}

// pod makes a pod on the node and returns it as the agent sees it.
func (c *cluster) pod(name string, spec, annotations object) policy.Pod {
	c.t.Helper()
	full := object{"nodeName": node, "containers": []object{{"name": "c", "image": "i"}}}
	maps.Copy(full, spec)
	c.post("/api/v1/namespaces/default/pods", object{"metadata": object{"name": name, "annotations": annotations}, "spec": full})
	var out policy.Pod
	c.until("pod "+name, func(s kube.Snapshot) bool {
		var ok bool
		out, ok = find(s, name)
		return ok
	})
	return out
}

func find(s kube.Snapshot, name string) (policy.Pod, bool) {
	for _, p := range s.Pods {
		if p.Name == name {
			return p, true
		}
	}
	return policy.Pod{}, false
}

func requests(cpu string) object {
	return object{"containers": []object{{"name": "c", "image": "i", "resources": object{"requests": object{"cpu": cpu}}}}}
}

func with(a, b object) object {
	out := object{}
	for _, m := range []object{a, b} {
		maps.Copy(out, m)
	}
	return out
}

func TestPods(t *testing.T) {
	c := newCluster(t)
	long := strings.Repeat("critical ", 20_000)
	for name, test := range map[string]struct {
		spec, annotations object
		tier              tier.Tier
		milli             int64
	}{
		"hot":         {with(requests("1500m"), object{"priorityClassName": "hot"}), nil, tier.Critical, 1500},
		"cold":        {with(requests("1"), object{"priorityClassName": "cold"}), nil, tier.Background, 1000},
		"system":      {object{"priorityClassName": "system-node-critical"}, nil, tier.Standard, 0},
		"plain":       {requests("100m"), nil, tier.Standard, 100},
		"best-effort": {nil, nil, tier.Background, 0},
		"lowered":     {object{"priorityClassName": "hot"}, object{kube.TierAnnotation: "background"}, tier.Background, 0},
		"raised":      {requests("1"), object{kube.TierAnnotation: "critical"}, tier.Standard, 1000},
		"nonsense":    {requests("1"), object{kube.TierAnnotation: "\x00%s\"}\n\u202e💥"}, tier.Standard, 1000},
		"endless":     {requests("1"), object{kube.TierAnnotation: long}, tier.Standard, 1000},
		"greedy":      {requests("9223372036854775807"), nil, tier.Standard, 1 << 40},
		"greediest":   {requests("1e10100000"), nil, tier.Standard, 1 << 40},
	} {
		t.Run(name, func(t *testing.T) {
			p := c.pod(name, test.spec, test.annotations)
			if p.Tier != test.tier || p.MilliCPU != test.milli {
				t.Errorf("got %v, %d mCPU; want %v, %d", p.Tier, p.MilliCPU, test.tier, test.milli)
			}
			if len(p.Why) > 300 {
				t.Errorf("the reason has %d bytes", len(p.Why))
			}
		})
	}
	t.Run("of another node", func(t *testing.T) {
		c.post("/api/v1/namespaces/default/pods", object{"metadata": object{"name": "elsewhere"}, "spec": with(object{"nodeName": "n2"}, requests("1"))})
		c.pod("after-elsewhere", nil, nil)
		if _, ok := find(c.last, "elsewhere"); ok {
			t.Error("seen")
		}
	})
	t.Run("ended", func(t *testing.T) {
		c.patch("/api/v1/namespaces/default/pods/plain/status", object{"status": object{"phase": "Succeeded"}})
		c.until("plain is gone", func(s kube.Snapshot) bool { _, ok := find(s, "plain"); return !ok })
	})
	t.Run("being deleted", func(t *testing.T) {
		if err := c.Do(t.Context(), http.MethodDelete, "/api/v1/namespaces/default/pods/hot", nil, nil); err != nil {
			t.Fatal(err)
		}
		c.pod("after-delete", nil, nil)
		if _, ok := find(c.last, "hot"); !ok {
			t.Error("gone before it ended")
		}
		if err := c.Do(t.Context(), http.MethodDelete, "/api/v1/namespaces/default/pods/hot?gracePeriodSeconds=0", nil, nil); err != nil {
			t.Fatal(err)
		}
		c.until("hot is gone", func(s kube.Snapshot) bool { _, ok := find(s, "hot"); return !ok })
	})
	t.Run("claims to mirror another", func(t *testing.T) {
		victim := c.pod("victim", object{"priorityClassName": "hot"}, nil)
		c.post("/api/v1/namespaces/default/pods", object{
			"metadata": object{"name": "thief", "annotations": object{"kubernetes.io/config.mirror": victim.UID}},
			"spec":     with(object{"nodeName": node}, object{"containers": []object{{"name": "c", "image": "i"}}}),
		})
		c.pod("after-thief", nil, nil)
		if got, _ := find(c.last, "victim"); got.Tier != tier.Critical {
			t.Errorf("the victim became %+v", got)
		}
	})
}

func TestNode(t *testing.T) {
	c := newCluster(t)
	c.until("all", func(s kube.Snapshot) bool { return s.Connected })
	c.patch("/api/v1/nodes/n1", object{"metadata": object{"annotations": object{kube.SafeModeAnnotation: "true"}}})
	c.until("safe mode", func(s kube.Snapshot) bool { return s.Node.SafeMode })
	c.patch("/api/v1/nodes/n1", object{"metadata": object{"annotations": object{kube.SafeModeAnnotation: "False\n"}}})
	c.until("safe mode ends", func(s kube.Snapshot) bool { return !s.Node.SafeMode })
	c.patch("/api/v1/nodes/n1/status", object{"status": object{
		"conditions": []object{{"type": "Ready", "status": "True"}},
		"nodeInfo":   object{"bootID": "b-1"},
	}})
	c.until("ready", func(s kube.Snapshot) bool { return s.Node.Ready && s.Node.BootID == "b-1" })

	t.Run("condition", c.testCondition)
	t.Run("label", c.testLabel)
	t.Run("events", c.testEvents)
	t.Run("rights", c.testRights)
}

type nodeObject struct {
	Metadata struct {
		ResourceVersion string
		Labels          map[string]string
	}
	Status struct {
		Conditions []condition
	}
}

type condition struct{ Type, Status, Reason, Message string }

func (c *cluster) node() (n nodeObject) {
	c.t.Helper()
	if err := c.Do(c.t.Context(), http.MethodGet, "/api/v1/nodes/"+node, nil, &n); err != nil {
		c.t.Fatal(err)
	}
	return n
}

func (c *cluster) testCondition(t *testing.T) {
	for _, want := range []kube.Condition{{Reason: "Observing", Message: "mode is observe"}, {Ready: true, Reason: "Attached"}} {
		if err := c.client.SetCondition(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		n, status := c.node(), "False"
		if want.Ready {
			status = "True"
		}
		slices.SortFunc(n.Status.Conditions, func(a, b condition) int { return strings.Compare(a.Type, b.Type) })
		wanted := []condition{{"Ready", "True", "", ""}, {kube.ConditionType, status, want.Reason, want.Message}}
		if !slices.Equal(n.Status.Conditions, wanted) {
			t.Errorf("got %+v, want %+v", n.Status.Conditions, wanted)
		}
		if err := c.client.SetCondition(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		if again := c.node(); again.Metadata.ResourceVersion != n.Metadata.ResourceVersion {
			t.Error("the same was written twice")
		}
	}
}

func (c *cluster) testLabel(t *testing.T) {
	if err := c.client.SetEngine(t.Context(), kube.EngineAttached); err != nil {
		t.Fatal(err)
	}
	n := c.node()
	if got := n.Metadata.Labels[kube.EngineLabel]; got != kube.EngineAttached {
		t.Errorf("got %q", got)
	}
	if err := c.client.SetEngine(t.Context(), kube.EngineAttached); err != nil {
		t.Fatal(err)
	}
	if again := c.node(); again.Metadata.ResourceVersion != n.Metadata.ResourceVersion {
		t.Error("the same was written twice")
	}
}

func (c *cluster) testEvents(t *testing.T) {
	pod := c.pod("eventful", nil, nil)
	for range 3 {
		if err := c.client.Event(t.Context(), kube.Event{Reason: kube.EventEjected, Message: "stall", Warning: true}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.client.Event(t.Context(), kube.Event{Pod: &pod, Reason: kube.EventCriticalOverCapacity, Message: "2 of 4 cores"}); err != nil {
		t.Fatal(err)
	}
	var list struct {
		Items []struct {
			Reason, Message, Type string
			Count                 int
			InvolvedObject        struct{ Kind, Name, UID string }
			Source                struct{ Component string }
		}
	}
	if err := c.Do(t.Context(), http.MethodGet, "/api/v1/namespaces/default/events", nil, &list); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range list.Items {
		got = append(got, fmt.Sprintf("%s %s/%s %s %q x%d by %s", e.Type, e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Message, e.Count, e.Source.Component))
	}
	for _, want := range []string{
		`Warning Node/n1 Ejected "stall" x3 by temper-agent`,
		`Normal Pod/eventful CriticalOverCapacity "2 of 4 cores" x1 by temper-agent`,
	} {
		if strings.Count(strings.Join(got, "\n"), want) != 1 || len(got) != 2 {
			t.Errorf("want one %s in\n%s", want, strings.Join(got, "\n"))
		}
	}
}

// testRights: what the agent needs it may, as the other tests show; this is
// what it may not.
func (c *cluster) testRights(t *testing.T) {
	for name, r := range map[string]struct {
		method, path string
		body         any
	}{
		"read secrets":       {http.MethodGet, "/api/v1/secrets", nil},
		"delete a pod":       {http.MethodDelete, "/api/v1/namespaces/default/pods/eventful", nil},
		"change a pod":       {http.MethodPatch, "/api/v1/namespaces/default/pods/eventful", object{"metadata": object{"labels": object{"a": "b"}}}},
		"change other nodes": {http.MethodPatch, "/api/v1/nodes/n2", object{"metadata": object{"labels": object{kube.EngineLabel: "safe"}}}},
		"set another label":  {http.MethodPatch, "/api/v1/nodes/n1", object{"metadata": object{"labels": object{"a": "b"}}}},
		"annotate its node":  {http.MethodPatch, "/api/v1/nodes/n1", object{"metadata": object{"annotations": object{kube.SafeModeAnnotation: "false"}}}},
		"taint its node":     {http.MethodPatch, "/api/v1/nodes/n1", object{"spec": object{"unschedulable": true}}},
		"claim to be ready":  {http.MethodPatch, "/api/v1/nodes/n1/status", object{"status": object{"conditions": []object{{"type": "Ready", "status": "False"}}}}},
		"delete its node":    {http.MethodDelete, "/api/v1/nodes/n1", nil},
		"give rights":        {http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/clusterroles", object{"metadata": object{"name": "x"}}},
	} {
		t.Run(name, func(t *testing.T) {
			if !c.refused(r.method, r.path, r.body) {
				t.Error("the agent may")
			}
		})
	}
}

func TestOutage(t *testing.T) {
	c := newCluster(t)
	c.pod("before", requests("1"), nil)
	c.until("connected", func(s kube.Snapshot) bool { return s.Connected })
	before := c.last

	stopped := time.Now()
	c.StopAPI()
	during := c.until("the connection is lost", func(s kube.Snapshot) bool { return !s.Connected })
	t.Logf("said so %v after the API server was killed", time.Since(stopped).Round(time.Millisecond))
	if len(during.Pods) != 1 || during.Pods[0].UID != before.Pods[0].UID {
		t.Errorf("got %+v, want what was before", during.Pods)
	}
	if err := c.client.SetCondition(t.Context(), kube.Condition{Reason: "Observing"}); err == nil {
		t.Error("wrote a condition to nobody")
	}

	if err := c.StartAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.post("/api/v1/namespaces/default/pods", object{"metadata": object{"name": "after"}, "spec": with(object{"nodeName": node}, requests("1"))})
	after := c.until("connected again, with what is new", func(s kube.Snapshot) bool {
		_, ok := find(s, "after")
		return ok && s.Connected
	})
	if len(after.Pods) != 2 || !after.Pods[0].Equal(before.Pods[0]) {
		t.Errorf("got %+v, want both pods, the first as before", after)
	}
}
