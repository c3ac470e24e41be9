// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// Node is the one node of a cluster that has one. Then a scheduler and the
// controllers run, and pods have service accounts, as anywhere.
type Node struct {
	Name string
	// Host is how the node reaches this machine's loopback.
	Host net.IP
	// Tunnel is the Unix socket of an HTTP proxy to the node's network, through
	// which the API server calls kubelet and pods.
	Tunnel string
}

// Service is the API server's address for pods.
const Service = "10.0.0.1:443"

// addresses are those that the API server's certificate is good for.
func (c Config) addresses() []net.IP {
	out := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 0, 0, 1)}
	if c.Node != nil {
		out = append(out, c.Node.Host)
	}
	return out
}

// writeTokens writes who may come, with which token.
func (p *Plane) writeTokens() error {
	text := p.token + "," + Admin + ",1,system:masters\n"
	if n := p.config.Node; n != nil {
		text += fmt.Sprintf("%s-node,system:node:%s,2,system:nodes\n", p.token, n.Name)
	}
	if err := os.WriteFile(p.file("tokens"), []byte(text), 0o600); err != nil {
		return fmt.Errorf("write tokens: %w", err)
	}
	return nil
}

// nodeArgs are the API server's for a cluster with a node.
func (p *Plane) nodeArgs() ([]string, error) {
	egress := fmt.Sprintf(`apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: %q}}}
`, p.config.Node.Tunnel)
	if err := os.WriteFile(p.file("egress.yaml"), []byte(egress), 0o600); err != nil {
		return nil, fmt.Errorf("write egress selection: %w", err)
	}
	return []string{
		"--authorization-mode=Node,RBAC", "--egress-selector-config-file=" + p.file("egress.yaml"),
		"--kubelet-preferred-address-types=InternalIP",
	}, nil
}

// startControllers starts what binds pods and makes them.
func (p *Plane) startControllers() error {
	admin, err := p.Kubeconfig(Admin)
	if err != nil {
		return err
	}
	for name, args := range map[string][]string{
		"kube-scheduler": {"--authentication-tolerate-lookup-failure"},
		// An emulated node that is late is not lost.
		"kube-controller-manager": {"--root-ca-file=" + p.file("ca.crt"), "--node-monitor-grace-period=10m"},
	} {
		args = append(args, "--kubeconfig="+admin, "--leader-elect=false", "--secure-port=0")
		c, err := start(filepath.Join(p.config.Bin, name), p.file(name+".log"), args...)
		if err != nil {
			return err
		}
		p.controllers = append(p.controllers, c)
	}
	return nil
}

// NodeKubeconfig writes kubelet's file, and returns its path. The authority is
// inside: the file is read elsewhere.
func (p *Plane) NodeKubeconfig() (string, error) {
	if p.config.Node == nil {
		return "", errors.New("write kubeconfig: the cluster has no node")
	}
	ca, err := os.ReadFile(p.file("ca.crt"))
	if err != nil {
		return "", fmt.Errorf("write kubeconfig: %w", err)
	}
	url := "https://" + net.JoinHostPort(p.config.Node.Host.String(), p.port)
	return p.writeKubeconfig(fmt.Sprintf("server: %q, certificate-authority-data: %s", url, base64.StdEncoding.EncodeToString(ca)), p.token+"-node", "")
}
