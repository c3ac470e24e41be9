// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"bytes"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/temper-sched/temper/cmd/temper/plugin"
	"github.com/temper-sched/temper/test/kube/plane"
)

// TestUninstallLeavesNothing verifies that a real API server understands what
// kubectl temper asks of it, from the released manifests to nothing. No agents
// run, and the namespace is not the install's.
func TestUninstallLeavesNothing(t *testing.T) {
	p := plane.ForTest(t)
	install(t, p)
	kubeconfig, err := p.Kubeconfig(plane.Admin)
	if err != nil {
		t.Fatal(err)
	}
	run := func(want int, args ...string) string {
		t.Helper()
		var out bytes.Buffer
		o := plugin.Options{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out, Version: "0.2.0", Poll: 10 * time.Millisecond}
		if got := plugin.Execute(t.Context(), o, append(args, "--kubeconfig", kubeconfig)); got != want {
			t.Fatalf("%v: exit code %d, want %d:\n%s", args, got, want, &out)
		}
		return out.String()
	}

	left := run(1, "uninstall", "--verify")
	for _, want := range []string{
		"DaemonSet temper-system/temper-agent", "ClusterRole temper-agent", "ValidatingAdmissionPolicyBinding temper-agent",
		"Node n1: label temper.dev/engine, condition TemperReady",
	} {
		if !strings.Contains(left, want) {
			t.Errorf("not seen to be there: %s\n%s", want, left)
		}
	}
	run(4, "status")
	if text := run(6, "doctor"); !strings.Contains(text, "what the agent is allowed: all that it needs") {
		t.Errorf("the agent's rights are not seen:\n%s", text)
	}
	run(0, "uninstall", "--yes")
	run(0, "uninstall", "--verify")
	run(0, "uninstall", "--yes")

	var n struct {
		Metadata struct{ Labels map[string]string }
		Status   struct{ Conditions []struct{ Type string } }
	}
	if err := p.Do(t.Context(), http.MethodGet, "/api/v1/nodes/n1", nil, &n); err != nil {
		t.Fatal(err)
	}
	if n.Metadata.Labels["pool"] != "web" || len(n.Status.Conditions) != 1 || n.Status.Conditions[0].Type != "Ready" {
		t.Errorf("more was removed of the node than was Temper's, or less: %+v", n)
	}
}

// install applies the released manifests, but for the namespace, and leaves on
// a node what an agent does.
func install(t *testing.T, p *plane.Plane) {
	t.Helper()
	do := func(method, path string, body any) {
		t.Helper()
		if err := p.Do(t.Context(), method, path, body, nil); err != nil {
			t.Fatal(err)
		}
	}
	do(http.MethodPost, "/api/v1/namespaces", object{"metadata": object{"name": "temper-system"}})
	do(http.MethodPost, "/api/v1/nodes", object{"metadata": object{"name": "n1", "labels": object{"pool": "web", "temper.dev/engine": "attached"}}})
	do(http.MethodPatch, "/api/v1/nodes/n1/status", object{"status": object{"conditions": []any{
		object{"type": "Ready", "status": "True"},
		object{"type": "TemperReady", "status": "True", "reason": "Attached", "message": "while it lasted"},
	}}})
	text, err := os.ReadFile("../../deploy/manifests/temper.yaml")
	if err != nil {
		t.Fatal(err)
	}
	paths := map[string]string{
		"NetworkPolicy":                    "/apis/networking.k8s.io/v1/namespaces/temper-system/networkpolicies",
		"ServiceAccount":                   "/api/v1/namespaces/temper-system/serviceaccounts",
		"ConfigMap":                        "/api/v1/namespaces/temper-system/configmaps",
		"ClusterRole":                      "/apis/rbac.authorization.k8s.io/v1/clusterroles",
		"ClusterRoleBinding":               "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
		"DaemonSet":                        "/apis/apps/v1/namespaces/temper-system/daemonsets",
		"ValidatingAdmissionPolicy":        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
		"ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
	}
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		_, rest, _ := strings.Cut("\n"+doc, "\nkind: ")
		kind, _, _ := strings.Cut(rest, "\n")
		switch {
		case kind == "": // the file's head
		case paths[kind] == "":
			t.Fatalf("the manifests have a %s, of which this test knows no path", kind)
		default:
			do(http.MethodPost, paths[kind], doc)
		}
	}
}
