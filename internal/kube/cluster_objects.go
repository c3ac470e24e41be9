// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// partOf selects everything of an install.
const partOf = "app.kubernetes.io/part-of=temper"

// installed are the kinds that an install is made of, in the order in which they
// are deleted: first whoever acts, then what it is allowed, its namespace last.
var installed = []struct {
	kind, api, resource string
	namespaced          bool
}{
	{"DaemonSet", "/apis/apps/v1", "daemonsets", true},
	{"Pod", "/api/v1", "pods", true},
	{"Service", "/api/v1", "services", true},
	{"PodMonitor", "/apis/monitoring.coreos.com/v1", "podmonitors", true},
	{"ServiceMonitor", "/apis/monitoring.coreos.com/v1", "servicemonitors", true},
	{"PrometheusRule", "/apis/monitoring.coreos.com/v1", "prometheusrules", true},
	{"ClusterRoleBinding", "/apis/rbac.authorization.k8s.io/v1", "clusterrolebindings", false},
	{"ClusterRole", "/apis/rbac.authorization.k8s.io/v1", "clusterroles", false},
	{"RoleBinding", "/apis/rbac.authorization.k8s.io/v1", "rolebindings", true},
	{"Role", "/apis/rbac.authorization.k8s.io/v1", "roles", true},
	{"ValidatingAdmissionPolicyBinding", "/apis/admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings", false},
	{"ValidatingAdmissionPolicy", "/apis/admissionregistration.k8s.io/v1", "validatingadmissionpolicies", false},
	{"PriorityClass", "/apis/scheduling.k8s.io/v1", "priorityclasses", false},
	{"ResourceQuota", "/api/v1", "resourcequotas", true},
	{"NetworkPolicy", "/apis/networking.k8s.io/v1", "networkpolicies", true},
	{"ConfigMap", "/api/v1", "configmaps", true},
	{"ServiceAccount", "/api/v1", "serviceaccounts", true},
	{"Namespace", "/api/v1", "namespaces", false},
}

// Object is a part of an install.
type Object struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Release is the Helm release that it belongs to, "" if none.
	Release string `json:"release,omitempty"`
	// Deleting is true once it was deleted and is not gone yet.
	Deleting bool `json:"deleting,omitempty"`
	path     string
}

func (o Object) String() string {
	if o.Namespace == "" {
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// Objects returns what is left of an install, in the order to delete it in. Of
// namespaces it is the install's own alone, if the install made it.
func (c *Cluster) Objects(ctx context.Context, namespace string) ([]Object, error) {
	var out []Object
	for _, k := range installed {
		path := k.api
		if k.namespaced {
			path += "/namespaces/" + namespace
		}
		path += "/" + k.resource
		items, err := c.metadata(ctx, path, partOf)
		if IsNotFound(err) { // the cluster knows no such kind
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", k.resource, err)
		}
		for _, m := range items {
			if k.kind == "Namespace" && m.Name != namespace {
				continue
			}
			out = append(out, Object{
				Kind: k.kind, Namespace: m.Namespace, Name: m.Name, path: path + "/" + m.Name,
				Release: m.Annotations["meta.helm.sh/release-name"], Deleting: m.DeletionTimestamp != nil,
			})
		}
	}
	return out, nil
}

func (c *Cluster) metadata(ctx context.Context, path, selector string) ([]metav1.PartialObjectMetadata, error) {
	var list metav1.PartialObjectMetadataList
	request := c.rest.Get().AbsPath(path).Param("labelSelector", selector).SetHeader("Accept", asList)
	err := into(ctx, request, &list)
	return list.Items, err
}

// Delete deletes the object, and what belongs to it. It may be gone already.
func (c *Cluster) Delete(ctx context.Context, o Object) error {
	body, err := json.Marshal(map[string]string{
		"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": string(metav1.DeletePropagationBackground),
	})
	if err != nil {
		return err
	}
	request := c.rest.Delete().AbsPath(o.path).SetHeader("Content-Type", "application/json").Body(body)
	if err := into(ctx, request, nil); err != nil && !IsNotFound(err) {
		return fmt.Errorf("delete %s: %w", o, err)
	}
	return nil
}

// InstalledIn returns the namespaces that Temper is installed in: those of the
// accounts that may act as agents. Where no binding is left it is those in which
// agents run; the error is IsForbidden for who may not list the pods of all.
func (c *Cluster) InstalledIn(ctx context.Context) ([]string, error) {
	var bindings struct {
		Items []struct {
			Subjects []struct{ Kind, Name, Namespace string } `json:"subjects"`
		} `json:"items"`
	}
	if err := c.list(ctx, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", partOf, &bindings); err != nil {
		return nil, fmt.Errorf("list clusterrolebindings: %w", err)
	}
	var found []string
	for _, b := range bindings.Items {
		for _, s := range b.Subjects {
			if s.Kind == "ServiceAccount" && s.Name == AgentName {
				found = append(found, s.Namespace)
			}
		}
	}
	if len(found) == 0 {
		var pods podList
		if err := c.list(ctx, "/api/v1/pods", AgentSelector, &pods); err != nil {
			return nil, fmt.Errorf("list agents in all namespaces: %w", err)
		}
		for i := range pods.Items {
			if canPin(&pods.Items[i]) {
				found = append(found, pods.Items[i].Namespace)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// canPin tells an agent from a pod that is labelled as one: whoever may create
// pods may do that, and not mount the host's bpffs.
func canPin(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
		return v.HostPath != nil && v.HostPath.Path == "/sys/fs/bpf"
	})
}

// HelmReleases returns the Helm releases in a namespace that hold one of these
// objects or are named after Temper.
func (c *Cluster) HelmReleases(ctx context.Context, namespace string, objects []Object) ([]string, error) {
	items, err := c.metadata(ctx, "/api/v1/namespaces/"+namespace+"/secrets", "owner=helm")
	if err != nil {
		return nil, fmt.Errorf("list Helm releases in namespace %s: %w", namespace, err)
	}
	var names []string
	for _, m := range items {
		name := m.Labels["name"]
		holds := slices.ContainsFunc(objects, func(o Object) bool { return o.Release == name })
		if name != "" && (holds || name == "temper" || strings.HasPrefix(name, "temper-")) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}
