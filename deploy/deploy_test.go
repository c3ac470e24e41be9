// SPDX-License-Identifier: Apache-2.0

// Package deploy holds what is installed in clusters. These tests read what the
// chart has rendered; the chart itself is checked by tools/installcheck.
package deploy

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/temper-sched/temper/internal/config"
	"github.com/temper-sched/temper/internal/metric"
)

type object = map[string]any

// TestPodSecurity names everything the agent's pod may do on its node.
func TestPodSecurity(t *testing.T) {
	pod := at[object](t, find(t, "DaemonSet"), "spec", "template", "spec")
	for _, field := range []string{"hostPID", "hostNetwork", "hostIPC", "initContainers"} {
		if _, ok := pod[field]; ok {
			t.Errorf("the pod has %s", field)
		}
	}
	want := object{"runAsUser": 0, "runAsGroup": 0, "seccompProfile": object{"type": "RuntimeDefault"}}
	if diff := cmp.Diff(want, at[object](t, pod, "securityContext")); diff != "" {
		t.Errorf("pod's security: %s", diff)
	}
	containers := at[[]any](t, pod, "containers")
	if len(containers) != 1 {
		t.Fatalf("%d containers", len(containers))
	}
	want = object{
		"privileged":               false,
		"allowPrivilegeEscalation": false,
		"readOnlyRootFilesystem":   true,
		"capabilities":             object{"drop": []any{"ALL"}, "add": []any{"BPF", "PERFMON"}},
	}
	if diff := cmp.Diff(want, at[object](t, containers[0].(object), "securityContext")); diff != "" {
		t.Errorf("container's security: %s", diff)
	}
}

// TestNoResourceLimits: at a CPU limit the dead-man strikes, and at a memory limit no
// process of the node can fork, for its threads are charged to the agent.
func TestNoResourceLimits(t *testing.T) {
	pod := at[object](t, find(t, "DaemonSet"), "spec", "template", "spec")
	resources := at[object](t, at[[]any](t, pod, "containers")[0].(object), "resources")
	if limits, ok := resources["limits"]; ok {
		t.Errorf("the agent is limited: %v", limits)
	}
}

// TestHostPaths names the node's files that the agent sees, and as what.
func TestHostPaths(t *testing.T) {
	pod := at[object](t, find(t, "DaemonSet"), "spec", "template", "spec")
	host := map[string]string{}
	for _, v := range at[[]any](t, pod, "volumes") {
		if v := v.(object); v["hostPath"] != nil {
			host[v["name"].(string)] = at[string](t, v, "hostPath", "path")
		}
	}
	got := map[string]string{}
	for _, m := range at[[]any](t, at[[]any](t, pod, "containers")[0].(object), "volumeMounts") {
		m := m.(object)
		if path, ok := host[m["name"].(string)]; ok {
			access := " rw"
			if m["readOnly"] == true {
				access = " ro"
			}
			got[path] = m["mountPath"].(string) + access
		}
	}
	want := map[string]string{
		"/sys/fs/cgroup": "/sys/fs/cgroup ro",
		"/sys/fs/bpf":    "/run/bpf rw",
		"/run/temper":    "/run/temper rw",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestPermissions names everything the agent may do in the cluster.
func TestPermissions(t *testing.T) {
	rule := func(resource string, verbs ...any) any {
		return object{"apiGroups": []any{""}, "resources": []any{resource}, "verbs": verbs}
	}
	want := []any{
		rule("pods", "list", "watch"),
		rule("nodes", "list", "watch", "patch"),
		rule("nodes/status", "patch"),
		rule("events", "create", "patch"),
	}
	if diff := cmp.Diff(want, find(t, "ClusterRole")["rules"]); diff != "" {
		t.Error(diff)
	}
	for _, o := range objects(t) {
		if kind := o["kind"]; kind == "Role" || kind == "RoleBinding" {
			t.Errorf("there is a %s, too", kind)
		}
	}
}

// TestNodeWritesAreJudged: what RBAC cannot say, the admission policy does.
func TestNodeWritesAreJudged(t *testing.T) {
	policy, binding := find(t, "ValidatingAdmissionPolicy"), find(t, "ValidatingAdmissionPolicyBinding")
	if got := at[string](t, binding, "spec", "policyName"); got != at[string](t, policy, "metadata", "name") {
		t.Errorf("the binding is of %s", got)
	}
	if got := at[[]any](t, binding, "spec", "validationActions"); !slices.Equal(got, []any{"Deny"}) {
		t.Errorf("actions %v", got)
	}
	if got := at[string](t, policy, "spec", "failurePolicy"); got != "Fail" {
		t.Errorf("what cannot be judged: %s", got)
	}
	rule := at[[]any](t, policy, "spec", "matchConstraints", "resourceRules")[0].(object)
	if diff := cmp.Diff([]any{"nodes", "nodes/status"}, rule["resources"]); diff != "" {
		t.Error(diff)
	}
}

// TestConfiguration: the chart's defaults are the agent's.
func TestConfiguration(t *testing.T) {
	text := at[string](t, find(t, "ConfigMap"), "data", "agent.yaml")
	got, err := config.ParseAgent("agent.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(config.DefaultAgent(), got); diff != "" {
		t.Error(diff)
	}
}

// TestEnforceOverlay: what kustomize makes of it is checked by tools/installcheck.
func TestEnforceOverlay(t *testing.T) {
	var overlay struct {
		Resources []string
		Patches   []struct{ Patch string }
	}
	if err := yaml.Unmarshal([]byte(read(t, "enforce/kustomization.yaml")), &overlay); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(overlay.Resources, []string{"../manifests"}) || len(overlay.Patches) != 1 {
		t.Fatalf("the overlay is %+v", overlay)
	}
	var patch object
	if err := yaml.Unmarshal([]byte(overlay.Patches[0].Patch), &patch); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(at[string](t, find(t, "ConfigMap"), "metadata", "name"), at[string](t, patch, "metadata", "name")); diff != "" {
		t.Error(diff)
	}
	got, err := config.ParseAgent("agent.yaml", []byte(at[string](t, patch, "data", "agent.yaml")))
	if err != nil {
		t.Fatal(err)
	}
	want := config.DefaultAgent()
	want.Mode = config.Enforce
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestUpgradeWaitsForTheAttach: an agent that ends at its first attach does not
// count as one that runs.
func TestUpgradeWaitsForTheAttach(t *testing.T) {
	ready := time.Duration(at[int](t, find(t, "DaemonSet"), "spec", "minReadySeconds")) * time.Second
	if settle := config.DefaultAgent().Settle; ready < settle+20*time.Second {
		t.Errorf("an upgrade goes on after %v, the first attach is after %v", ready, settle)
	}
}

func TestEverythingIsLabelled(t *testing.T) {
	all := objects(t)
	if len(all) < 8 {
		t.Fatalf("%d objects", len(all))
	}
	for _, o := range all {
		if got := at[string](t, o, "metadata", "labels", "app.kubernetes.io/part-of"); got != "temper" {
			t.Errorf("%s is part of %q", o["kind"], got)
		}
	}
}

var metricName = regexp.MustCompile(`\btemper_\w+`)

// TestMetricsExist: rules and dashboard ask for nothing the agent does not export.
func TestMetricsExist(t *testing.T) {
	for _, file := range []string{"rules.yaml", "dashboard.json"} {
		text := read(t, "chart/temper/files/"+file)
		names := metricName.FindAllString(text, -1)
		if len(names) == 0 {
			t.Errorf("%s names no metric", file)
		}
		for _, name := range names {
			if !exported(name) {
				t.Errorf("%s: the agent has no %s", file, name)
			}
		}
	}
}

func exported(name string) bool {
	base := name
	for _, suffix := range []string{"_bucket", "_count", "_sum"} {
		base = strings.TrimSuffix(base, suffix)
	}
	doc := metric.Doc()
	return strings.Contains(doc, "| `"+name+"` |") || strings.Contains(doc, "| `"+base+"` | histogram |")
}

func TestDashboardIsJSON(t *testing.T) {
	var dashboard struct {
		UID    string
		Panels []struct{ Title string }
	}
	if err := json.Unmarshal([]byte(read(t, "chart/temper/files/dashboard.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	if dashboard.UID == "" || len(dashboard.Panels) == 0 {
		t.Errorf("uid %q, %d panels", dashboard.UID, len(dashboard.Panels))
	}
}

// TestAlertsAreTested: promtool's tests have a case for which each alert fires,
// and one for which it does not.
func TestAlertsAreTested(t *testing.T) {
	var rules struct {
		Groups []struct{ Rules []struct{ Alert string } }
	}
	if err := yaml.Unmarshal([]byte(read(t, "chart/temper/files/rules.yaml")), &rules); err != nil {
		t.Fatal(err)
	}
	var tests struct {
		Tests []struct {
			Cases []struct {
				Alert string `yaml:"alertname"`
				Fires []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "rules_test.yaml")), &tests); err != nil {
		t.Fatal(err)
	}
	fires, quiet := map[string]bool{}, map[string]bool{}
	for _, test := range tests.Tests {
		for _, c := range test.Cases {
			fires[c.Alert] = fires[c.Alert] || len(c.Fires) > 0
			quiet[c.Alert] = quiet[c.Alert] || len(c.Fires) == 0
		}
	}
	alerts := 0
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if r.Alert == "" {
				continue
			}
			alerts++
			if !fires[r.Alert] || !quiet[r.Alert] {
				t.Errorf("%s: a test in which it fires: %t, does not: %t", r.Alert, fires[r.Alert], quiet[r.Alert])
			}
		}
	}
	if alerts == 0 {
		t.Error("no alerts")
	}
}

// find returns the manifests' only object of that kind.
func find(t *testing.T, kind string) object {
	t.Helper()
	var found []object
	for _, o := range objects(t) {
		if o["kind"] == kind {
			found = append(found, o)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d objects of kind %s", len(found), kind)
	}
	return found[0]
}

func objects(t *testing.T) []object {
	t.Helper()
	var out []object
	for _, file := range []string{"namespace.yaml", "temper.yaml"} {
		for d := yaml.NewDecoder(bytes.NewReader([]byte(read(t, "manifests/"+file)))); ; {
			var o object
			err := d.Decode(&o)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if o != nil {
				out = append(out, o)
			}
		}
	}
	return out
}

// at returns what lies below o by these keys.
func at[T any](t *testing.T, o object, keys ...string) T {
	t.Helper()
	var value any = o
	for _, key := range keys {
		m, ok := value.(object)
		if !ok {
			t.Fatalf("nothing at %s", strings.Join(keys, "."))
		}
		value = m[key]
	}
	out, ok := value.(T)
	if !ok {
		t.Fatalf("%s is %v", strings.Join(keys, "."), value)
	}
	return out
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
