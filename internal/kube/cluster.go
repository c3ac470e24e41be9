// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// maxReport is more than the report of the largest node.
	maxReport = 16 << 20
	// manyRequests are what a person's command may send in a second: one to
	// each agent, at once.
	manyRequests = 100
	// asList asks for metadata alone. Of secrets nothing else is to be seen.
	asList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// Cluster speaks to the API server for a person, about all nodes.
type Cluster struct {
	rest rest.Interface
	// Namespace is that of the kubeconfig's context.
	Namespace string
}

// OpenCluster returns a client by the kubeconfig, as kubectl finds it if that is
// empty, and the context, the current one if that is empty.
func OpenCluster(kubeconfig, context string) (*Cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: context})
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.UserAgent = "kubectl-temper"
	config.QPS, config.Burst = manyRequests, 2*manyRequests
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make client of %s: %w", config.Host, err)
	}
	return &Cluster{rest: client, Namespace: namespace}, nil
}

// IsNotFound tells that the object, or what the API server knows of its kind, is
// not there.
func IsNotFound(err error) bool { return apierrors.IsNotFound(err) }

// IsForbidden tells that whoever asks may not.
func IsForbidden(err error) bool { return apierrors.IsForbidden(err) }

// get reads what is at path into out.
func (c *Cluster) get(ctx context.Context, path string, out any) error {
	return into(ctx, c.rest.Get().AbsPath(path), out)
}

// list reads the objects at path that the labels select.
func (c *Cluster) list(ctx context.Context, path, selector string, out any) error {
	return into(ctx, c.rest.Get().AbsPath(path).Param("labelSelector", selector), out)
}

// into sends the request. The API server's own words come with a failure.
func into(ctx context.Context, request *rest.Request, out any) error {
	result := request.Timeout(requestTimeout).Do(ctx)
	if err := result.Error(); err != nil {
		return err
	}
	body, err := result.Raw()
	if err != nil || out == nil {
		return err
	}
	return json.Unmarshal(body, out)
}

// patch changes the object at path.
func (c *Cluster) patch(ctx context.Context, kind types.PatchType, path string, patch any) error {
	body, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	return into(ctx, c.rest.Patch(kind).AbsPath(path).Body(body), nil)
}

// Agent is the pod of a node's agent.
type Agent struct {
	Namespace, Name, Node, Image string
	Ready                        bool
	Phase                        string
	port                         int
}

// Agents returns the agents' pods of an install. Only those of its namespace
// are believed: whoever may create a pod elsewhere may label it so.
func (c *Cluster) Agents(ctx context.Context, namespace string) ([]Agent, error) {
	var pods podList
	if err := c.list(ctx, "/api/v1/namespaces/"+namespace+"/pods", AgentSelector, &pods); err != nil {
		return nil, fmt.Errorf("list agents in namespace %s: %w", namespace, err)
	}
	var agents []Agent
	for i := range pods.Items {
		if pods.Items[i].Spec.NodeName != "" {
			agents = append(agents, agentOf(&pods.Items[i]))
		}
	}
	return agents, nil
}

// Report returns the JSON of the agent's /status, through the API server.
func (c *Cluster) Report(ctx context.Context, a Agent) ([]byte, error) {
	target := url.PathEscape(a.Name + ":" + strconv.Itoa(a.port))
	body, err := c.rest.Get().AbsPath("/api/v1/namespaces", a.Namespace, "pods", target, "proxy/status").
		SetHeader("Accept", "application/json").Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("read status of agent %s: %w", a.Name, err)
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, maxReport+1))
	if err == nil && len(text) > maxReport {
		err = fmt.Errorf("more than %d bytes", maxReport)
	}
	if err != nil {
		return nil, fmt.Errorf("read status of agent %s: %w", a.Name, err)
	}
	return text, nil
}

// DaemonSet is how far one of the agents' is rolled out.
type DaemonSet struct {
	Name                    string
	Desired, Updated, Ready int
	// Observed is false until the controller has seen its last change.
	Observed bool
}

// DaemonSets returns those of the agents: one, and the canaries'.
func (c *Cluster) DaemonSets(ctx context.Context, namespace string) ([]DaemonSet, error) {
	var list struct {
		Items []struct {
			Metadata metav1.ObjectMeta `json:"metadata"`
			Status   struct {
				Observed int64 `json:"observedGeneration"`
				Desired  int   `json:"desiredNumberScheduled"`
				Updated  int   `json:"updatedNumberScheduled"`
				Ready    int   `json:"numberReady"`
			} `json:"status"`
		} `json:"items"`
	}
	if err := c.list(ctx, "/apis/apps/v1/namespaces/"+namespace+"/daemonsets", AgentSelector, &list); err != nil {
		return nil, fmt.Errorf("list DaemonSets in namespace %s: %w", namespace, err)
	}
	var sets []DaemonSet
	for _, item := range list.Items {
		s := item.Status
		sets = append(sets, DaemonSet{item.Metadata.Name, s.Desired, s.Updated, s.Ready, s.Observed >= item.Metadata.Generation})
	}
	return sets, nil
}

// PriorityClass is a class that pods may have.
type PriorityClass struct {
	Name  string
	Value int32
	// GlobalDefault is true of that which pods have that name none.
	GlobalDefault bool
}

// PriorityClasses returns those of the cluster.
func (c *Cluster) PriorityClasses(ctx context.Context) ([]PriorityClass, error) {
	var list struct {
		Items []struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
			Value         int32 `json:"value"`
			GlobalDefault bool  `json:"globalDefault"`
		} `json:"items"`
	}
	if err := c.get(ctx, "/apis/scheduling.k8s.io/v1/priorityclasses", &list); err != nil {
		return nil, fmt.Errorf("list PriorityClasses: %w", err)
	}
	var classes []PriorityClass
	for _, item := range list.Items {
		classes = append(classes, PriorityClass{item.Metadata.Name, item.Value, item.GlobalDefault})
	}
	return classes, nil
}

// ConfigMap returns the data of one.
func (c *Cluster) ConfigMap(ctx context.Context, namespace, name string) (map[string]string, error) {
	var object struct {
		Data map[string]string `json:"data"`
	}
	if err := c.get(ctx, "/api/v1/namespaces/"+namespace+"/configmaps/"+name, &object); err != nil {
		return nil, fmt.Errorf("get ConfigMap %s/%s: %w", namespace, name, err)
	}
	return object.Data, nil
}

// agentNeeds is what names.go says the agent asks the API server for.
var agentNeeds = []struct {
	resource, subresource string
	verbs                 []string
}{
	{"pods", "", []string{"list", "watch"}},
	{"nodes", "", []string{"list", "watch", "patch"}},
	{"nodes", "status", []string{"patch"}},
	{"events", "", []string{"create", "patch"}},
}

// AgentMayNot returns what the agent needs and may not, "patch nodes/status".
func (c *Cluster) AgentMayNot(ctx context.Context, namespace string) (denied []string, err error) {
	for _, need := range agentNeeds {
		resource := need.resource
		if need.subresource != "" {
			resource += "/" + need.subresource
		}
		for _, verb := range need.verbs {
			allowed, err := c.agentMay(ctx, namespace, verb, need.resource, need.subresource)
			if err != nil {
				return nil, fmt.Errorf("review whether the agent may %s %s: %w", verb, resource, err)
			}
			if !allowed {
				denied = append(denied, verb+" "+resource)
			}
		}
	}
	return denied, nil
}

func (c *Cluster) agentMay(ctx context.Context, namespace, verb, resource, subresource string) (bool, error) {
	review := map[string]any{
		"apiVersion": "authorization.k8s.io/v1",
		"kind":       "SubjectAccessReview",
		"spec": map[string]any{
			"user":               "system:serviceaccount:" + namespace + ":" + AgentName,
			"groups":             []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
			"resourceAttributes": map[string]string{"verb": verb, "resource": resource, "subresource": subresource},
		},
	}
	body, err := json.Marshal(review)
	if err != nil {
		return false, err
	}
	var answer struct {
		Status struct {
			Allowed bool `json:"allowed"`
		} `json:"status"`
	}
	request := c.rest.Post().AbsPath("/apis/authorization.k8s.io/v1/subjectaccessreviews").
		SetHeader("Content-Type", "application/json").Body(body)
	return answer.Status.Allowed, into(ctx, request, &answer)
}
