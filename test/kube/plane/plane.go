// SPDX-License-Identifier: Apache-2.0

// Package plane runs a real control plane for tests: etcd and kube-apiserver on
// loopback, without a scheduler, controllers or nodes unless a Node is asked
// for. tools/kube builds them.
//
// Who may do what is RBAC's. Without a Node nothing makes service accounts'
// default tokens or removes what a deleted namespace held; pods need no service
// account.
package plane

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Admin is the user that may do everything.
const Admin = "admin"

// startTimeout is for a machine that has much else to do.
const startTimeout = 3 * time.Minute

// Config says where a control plane is.
type Config struct {
	Dir string // for its data, keys and logs
	Bin string // where etcd and kube-apiserver are
	// Node is nil in a cluster without one.
	Node *Node
}

// Plane is a control plane that runs.
type Plane struct {
	URL string // of the API server, https

	config Config
	token  string // Admin's
	port   string // of the API server
	client *http.Client
	etcd   *process
	api    *process // nil while stopped
	args   []string // of the API server

	controllers []*process
}

// ForTest starts a control plane for the test. Without TEMPER_KUBE_BIN, where
// tools/kube left the programs, it skips the test.
func ForTest(t testing.TB) *Plane {
	t.Helper()
	bin := os.Getenv("TEMPER_KUBE_BIN")
	if bin == "" {
		if os.Getenv("REQUIRE_ALL") == "1" {
			t.Fatal("cannot run, and REQUIRE_ALL=1: TEMPER_KUBE_BIN is not set")
		}
		t.Skip("needs a control plane: make kube-api-test")
	}
	p, err := Start(t.Context(), Config{Dir: t.TempDir(), Bin: bin})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// Start returns when the API server is ready.
func Start(ctx context.Context, c Config) (*Plane, error) {
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	p := &Plane{URL: "https://" + ports[0], config: c, token: rand.Text()}
	if _, p.port, err = net.SplitHostPort(ports[0]); err != nil {
		return nil, err
	}
	ca, err := writeKeys(c.Dir, c.addresses())
	if err != nil {
		return nil, fmt.Errorf("write keys: %w", err)
	}
	p.client = &http.Client{Transport: transport(ca)}
	if err := p.writeTokens(); err != nil {
		return nil, err
	}
	if p.args, err = p.apiArgs(ports[1]); err != nil {
		return nil, err
	}
	p.etcd, err = start(filepath.Join(c.Bin, "etcd"), p.file("etcd.log"),
		"--data-dir="+p.file("etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=http://"+ports[1], "--advertise-client-urls=http://"+ports[1],
		"--listen-peer-urls=http://"+ports[2])
	if err != nil {
		return nil, err
	}
	err = p.StartAPI(ctx)
	if err == nil && c.Node != nil {
		err = p.startControllers()
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func (p *Plane) file(name string) string { return filepath.Join(p.config.Dir, name) }

func (p *Plane) apiArgs(etcd string) ([]string, error) {
	args := []string{
		"--etcd-servers=http://" + etcd,
		"--bind-address=127.0.0.1", "--secure-port=" + p.port,
		"--advertise-address=10.0.0.2", "--endpoint-reconciler-type=none", // of the Service nobody uses
		"--tls-cert-file=" + p.file("api.crt"), "--tls-private-key-file=" + p.file("api.key"),
		"--token-auth-file=" + p.file("tokens"), "--anonymous-auth=false",
		"--service-account-issuer=https://temper.invalid",
		"--service-account-key-file=" + p.file("api.key"), "--service-account-signing-key-file=" + p.file("api.key"),
		"--service-cluster-ip-range=10.0.0.0/24",
		"--enable-priority-and-fairness=false", // costs a small machine half its start
		"--allow-privileged",
	}
	if p.config.Node == nil {
		return append(args, "--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount"), nil
	}
	more, err := p.nodeArgs()
	return append(args, more...), err
}

// StartAPI starts the API server again, where it was.
func (p *Plane) StartAPI(ctx context.Context) error {
	if p.api != nil {
		return errors.New("start kube-apiserver: it runs")
	}
	api, err := start(filepath.Join(p.config.Bin, "kube-apiserver"), p.file("apiserver.log"), p.args...)
	if err != nil {
		return err
	}
	p.api = api
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		err := p.Do(ctx, http.MethodGet, "/readyz", nil, nil)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-api.ended:
			return fmt.Errorf("start kube-apiserver: it ended\n%s", api.tail())
		case <-p.etcd.ended:
			return fmt.Errorf("start kube-apiserver: etcd ended\n%s", p.etcd.tail())
		case <-ctx.Done():
			return fmt.Errorf("start kube-apiserver: %w: %w\n%s", ctx.Err(), err, api.tail())
		}
	}
}

// StopAPI kills the API server, as a crash does. What etcd has stays.
func (p *Plane) StopAPI() {
	if p.api != nil {
		p.api.kill()
		p.api = nil
	}
	p.client.CloseIdleConnections()
}

// Close ends all.
func (p *Plane) Close() {
	for _, c := range p.controllers {
		c.kill()
	}
	p.StopAPI()
	p.etcd.kill()
}

// Kubeconfig writes a file for a user, and returns its path. All but Admin
// are impersonated; a service account is system:serviceaccount:NAMESPACE:NAME.
func (p *Plane) Kubeconfig(user string) (string, error) {
	if user == Admin {
		return p.KubeconfigOf(p.token)
	}
	return p.writeKubeconfig(p.cluster(), p.token, fmt.Sprintf(", as: %q, as-groups: [%s]", user, groupsOf(user)))
}

// KubeconfigOf writes a file for whoever has the token, and returns its path.
func (p *Plane) KubeconfigOf(token string) (string, error) {
	return p.writeKubeconfig(p.cluster(), token, "")
}

// cluster is how a kubeconfig on this machine names the API server.
func (p *Plane) cluster() string {
	return fmt.Sprintf("server: %q, certificate-authority: %q", p.URL, p.file("ca.crt"))
}

func (p *Plane) writeKubeconfig(cluster, token, more string) (string, error) {
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: it, cluster: {%s}}]
users: [{name: it, user: {token: %q%s}}]
contexts: [{name: it, context: {cluster: it, user: it}}]
current-context: it
`, cluster, token, more)
	f, err := os.CreateTemp(p.config.Dir, "kubeconfig-")
	if err != nil {
		return "", fmt.Errorf("write kubeconfig: %w", err)
	}
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("write kubeconfig: %w", err)
	}
	return f.Name(), nil
}

// freePorts are loopback addresses that nobody listens on now.
func freePorts(n int) ([]string, error) {
	var out []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find free port: %w", err)
		}
		defer l.Close() // after all are found, so that they differ
		out = append(out, l.Addr().String())
	}
	return out, nil
}
