// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/temper-sched/temper/clock"
	"github.com/temper-sched/temper/internal/guest"
	"github.com/temper-sched/temper/test/e2e/place"
	"github.com/temper-sched/temper/test/kube/plane"
)

// machine is the guest that is the cluster's node.
type machine struct {
	addr  string // of the command node, on this host
	stop  context.CancelFunc
	ended chan struct{}
	err   error // how the guest ended, once it has
	// provenance is there once it has ended.
	provenance guest.Provenance
	console    bytes.Buffer
}

// machineSpec is what a node is booted from.
type machineSpec struct {
	kernel     string
	topology   string // empty for the default
	virtual    bool   // time is, and the machine slow
	port       int    // of the command node, on this host
	kubelet    string // the program
	node       string // the program of test/e2e/node
	lab        string // the laboratory's, for a node
	kubeconfig string // kubelet's
	images     string // a folder of archives
	api        string // the API server's address on this host
	said       io.Writer
}

func (s machineSpec) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// boot starts the guest. It runs until it is powered off.
func boot(t *testing.T, s machineSpec) *machine {
	t.Helper()
	m := &machine{addr: s.addr(), ended: make(chan struct{})}
	guestPort, err := strconv.Atoi(place.Port)
	if err != nil {
		t.Fatal(err)
	}
	_, apiPort, err := net.SplitHostPort(s.api)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{
		"/usr/local/bin/node": s.node, place.Lab: s.lab, place.Kubelet: s.kubelet, place.Kubeconfig: s.kubeconfig, place.Images: s.images,
		place.KubeletConfig:               "testdata/node/kubelet.yaml",
		"/etc/containerd/config.toml":     "testdata/node/containerd.toml",
		"/etc/cni/net.d/10-pods.conflist": "testdata/node/cni.conflist",
		"/etc/machine-id":                 "testdata/node/machine-id",
	}
	args := []string{"-api", net.JoinHostPort(place.HostIP, apiPort), "-service", plane.Service}
	mode := guest.Functional
	if s.virtual {
		args = append(args, "-virtual", strconv.FormatInt(time.Now().Unix(), 10))
		mode = guest.Deterministic
	}
	c := guest.Command(guest.Machine{
		Mode: mode, Clock: clock.Plugin, Seed: 1,
		Kernel: s.kernel, Topology: s.topology, MemoryMB: 3072, Suite: "forky", Files: files, Forward: map[int]int{s.port: guestPort},
		Packages: []string{"containerd", "runc", "containernetworking-plugins", "memcached"},
		Modules:  []string{"virtio_net", "overlay", "bridge", "veth"},
	}, "/usr/local/bin/node", args...)
	c.Stdout, c.Stderr, c.Console = s.said, s.said, &m.console
	c.Log = guest.ProgressLog(os.Stderr)
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	go func() {
		m.err = c.Run(ctx)
		m.provenance = c.Provenance()
		if ctx.Err() == nil {
			fmt.Fprintf(s.said, "the node's machine ended: %v\n", m.err)
		}
		close(m.ended)
	}()
	return m
}

// powerOff ends the guest as a power failure would.
func (m *machine) powerOff() {
	m.stop()
	<-m.ended
}

// testLog passes on what the command node says.
type testLog struct{ t *testing.T }

func (l testLog) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// try runs a command in the guest.
func (m *machine) try(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	query := url.Values{"arg": args}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+m.addr+"/run?"+query.Encode(), stdin)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if failed := resp.Header.Get(place.ErrorHeader); failed != "" {
		err = errors.Join(err, fmt.Errorf("run %s in the guest: %s: %s", strings.Join(args, " "), failed, out))
	}
	return string(out), err
}

// sh runs a script in the guest and returns what it said.
func (m *machine) sh(t *testing.T, script string) string {
	t.Helper()
	// Cleaning up goes on when the test is over.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*time.Minute)
	defer cancel()
	out, err := m.try(ctx, nil, "/bin/sh", "-c", script)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
