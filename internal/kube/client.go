// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"log/slog"
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/temper-sched/temper/internal/tier"
)

const (
	// requestsPerSecond bounds what one node asks of the API server, in total.
	requestsPerSecond = 5
	// requestTimeout is for all requests but watches.
	requestTimeout = 10 * time.Second
	// dialTimeout is how long a dead address can pass for a live one.
	dialTimeout = 5 * time.Second
)

// Config is what a client is made of.
type Config struct {
	Kubeconfig string // a file; "" for the service account of the pod this runs in
	NodeName   string
	Thresholds tier.Thresholds
	Log        *slog.Logger
}

// Client speaks to the API server for one node. Its methods may be called from
// several goroutines.
type Client struct {
	node   string
	rest   rest.Interface
	params runtime.ParameterCodec
	log    *slog.Logger
	view   *view
	events *recorder
}

// New returns a client that has not sent anything yet.
func New(c Config) (*Client, error) {
	read := rest.InClusterConfig
	if c.Kubeconfig != "" {
		read = func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", c.Kubeconfig) }
	}
	config, err := read()
	if err != nil {
		return nil, fmt.Errorf("read cluster configuration: %w", err)
	}
	client, params, err := coreClient(config)
	if err != nil {
		return nil, fmt.Errorf("make client of %s: %w", config.Host, err)
	}
	return &Client{
		node:   c.NodeName,
		rest:   client,
		params: params,
		log:    c.Log,
		view:   newView(c.Thresholds),
		events: newRecorder(),
	}, nil
}

// coreClient is a client of the core group alone: the clientset of all groups
// would be most of the agent's binary.
func coreClient(config *rest.Config) (*rest.RESTClient, runtime.ParameterCodec, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, nil, err
	}
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	config.APIPath = "/api"
	config.GroupVersion = &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.ContentType = runtime.ContentTypeProtobuf
	config.UserAgent = AgentName
	config.QPS = requestsPerSecond
	config.Burst = 2 * requestsPerSecond
	config.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}).DialContext
	client, err := rest.RESTClientFor(config)
	return client, runtime.NewParameterCodec(scheme), err
}
