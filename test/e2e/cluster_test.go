// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/agent"
	"github.com/temper-sched/temper/test/e2e/place"
	"github.com/temper-sched/temper/test/kube/plane"
)

// slack is how much slower than a machine an emulated one may be.
const slack = 10

// upgradeTag is of the agent's image under another name, which is what an
// upgrade that leaves the object as it is looks like.
const upgradeTag = "upgrade"

// cluster is a control plane on this machine with a node in a guest.
type cluster struct {
	plane   *plane.Plane
	node    *machine
	spec    machineSpec
	environ []string // of commands on this host
}

// startCluster returns when kubelet has reported its node ready, on the machine
// of that kernel and topology. Without TEMPER_E2E, where tools/kube left the
// programs, it skips the test.
func startCluster(t *testing.T, of machineSpec) *cluster {
	t.Helper()
	programs := os.Getenv("TEMPER_E2E")
	if programs == "" {
		t.Skip("needs a cluster: make e2e")
	}
	dir := t.TempDir()
	of.port, of.kubelet, of.images, of.said = freePort(t), filepath.Join(programs, "kubelet"), dir+"/images", testLog{t}
	c := &cluster{spec: of}
	c.buildAll(t, dir, programs)
	var err error
	c.plane, err = plane.Start(t.Context(), plane.Config{Dir: dir, Bin: programs, Node: &plane.Node{
		Name: place.NodeName, Host: net.ParseIP(place.HostIP), Tunnel: c.tunnel(t, dir),
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.plane.Close)
	if c.spec.kubeconfig, err = c.plane.NodeKubeconfig(); err != nil {
		t.Fatal(err)
	}
	admin, err := c.plane.Kubeconfig(plane.Admin)
	if err != nil {
		t.Fatal(err)
	}
	c.environ = append(os.Environ(), "KUBECONFIG="+admin, "PATH="+dir+"/bin:"+os.Getenv("PATH"))
	c.spec.api = strings.TrimPrefix(c.plane.URL, "https://")
	t.Cleanup(func() {
		if c.node != nil {
			c.node.powerOff()
		}
	})
	c.boot(t)
	return c
}

// buildAll makes what runs on this host and in the guest.
func (c *cluster) buildAll(t *testing.T, dir, programs string) {
	t.Helper()
	for _, d := range []string{"/bin", "/images"} {
		if err := os.Mkdir(dir+d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(programs, "kubectl"), dir+"/bin/kubectl"); err != nil {
		t.Fatal(err)
	}
	c.environ = os.Environ()
	c.spec.node, c.spec.lab = dir+"/bin/node", dir+"/bin/lab"
	c.host(t, "CGO_ENABLED=0 go build -trimpath -o "+c.spec.node+" ./test/e2e/node")
	c.host(t, "CGO_ENABLED=0 go build -trimpath -o "+dir+"/bin/kubectl-temper ./cmd/temper")
	// As make build does, so that its hash says which it is.
	c.host(t, "CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags=-buildid= -o "+c.spec.lab+" ./cmd/temper-lab-node")
	writePodImage(t, c.spec.images, c.spec.node)
	c.host(t, "go run ./tools/image -arch amd64 -o "+c.spec.images+"/agent.tar")
	c.host(t, "go run ./tools/image -arch amd64 -tag "+upgradeTag+" -o "+c.spec.images+"/upgrade.tar")
}

// patience is d, or more on a machine that is slow on purpose.
func (c *cluster) patience(d time.Duration) time.Duration {
	if c.spec.virtual {
		return 4 * d
	}
	return d
}

// tunnel listens where the API server looks for the node's network, and passes
// connections on to the command node.
func (c *cluster) tunnel(t *testing.T, dir string) string {
	t.Helper()
	path := dir + "/tunnel"
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer from.Close()
				to, err := net.Dial("tcp", c.spec.addr())
				if err != nil {
					return
				}
				defer to.Close()
				go func() { _, _ = io.Copy(to, from); to.Close() }()
				_, _ = io.Copy(from, to)
			}()
		}
	}()
	return path
}

// boot starts the node's machine, the first time or again.
func (c *cluster) boot(t *testing.T) {
	t.Helper()
	before := c.bootID()
	c.node = boot(t, c.spec)
	eventually(t, c.patience(10*time.Minute), "the node is ready", func() error {
		select {
		case <-c.node.ended:
			t.Fatalf("boot node: %v\n%s", c.node.err, c.node.console.String())
		default:
		}
		if now := c.bootID(); now == before {
			return fmt.Errorf("kubelet has not reported boot %q", now)
		}
		ready, err := c.try("kubectl get node " + place.NodeName + ` -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status} {.spec.taints}'`)
		if err == nil && ready != "True " {
			err = fmt.Errorf("ready and taints are %q", ready)
		}
		return err
	})
}

// bootID is empty before the first boot.
func (c *cluster) bootID() string {
	id, err := c.try("kubectl get node " + place.NodeName + " -o 'jsonpath={.status.nodeInfo.bootID}'")
	if err != nil {
		return ""
	}
	return id
}

// try runs a script on this host, in the repository's root.
func (c *cluster) try(script string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-eu", "-c", script)
	cmd.Dir, cmd.Env = "../..", c.environ
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("run %q: %w\n%s%s", script, err, out, said.String())
	}
	return string(out), nil
}

// host is try of what must succeed.
func (c *cluster) host(t *testing.T, script string) string {
	t.Helper()
	out, err := c.try(script)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// decode runs a script that prints JSON.
func decode[T any](c *cluster, script string) (v T, err error) {
	out, err := c.try(script)
	if out == "" && err != nil {
		return v, err
	}
	// What says that a node is not attached does so by its exit code, too.
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		return v, fmt.Errorf("read what %q said: %w", script, err)
	}
	return v, nil
}

// report asks the agent.
func (c *cluster) report() (agent.Report, error) {
	pod, err := c.try("kubectl -n temper-system get pods -l app.kubernetes.io/name=temper-agent --field-selector status.phase=Running -o name")
	if err != nil {
		return agent.Report{}, err
	}
	name := strings.TrimPrefix(strings.TrimSpace(pod), "pod/")
	if name == "" || strings.Contains(name, "\n") {
		return agent.Report{}, fmt.Errorf("find agent: pods are %q", name)
	}
	return decode[agent.Report](c, "kubectl get --raw /api/v1/namespaces/temper-system/pods/"+name+":9464/proxy/status")
}

// want waits until the engine is as said, to the agent, on the node object and
// in kubectl temper status.
func (c *cluster) want(t *testing.T, engine, reason string) {
	t.Helper()
	eventually(t, c.patience(5*time.Minute), "the engine is "+engine+": "+reason, func() error {
		r, err := c.report()
		if err != nil {
			return err
		}
		object, err := c.try("kubectl get node " + place.NodeName + ` -o 'jsonpath={.metadata.labels.temper\.dev/engine} {.status.conditions[?(@.type=="TemperReady")].reason}'`)
		if err != nil {
			return err
		}
		status, err := decode[struct {
			Nodes []struct{ Engine, Reason string }
		}](c, "kubectl temper status -o json")
		if err != nil {
			return err
		}
		if len(status.Nodes) != 1 {
			return fmt.Errorf("kubectl temper status names %d nodes", len(status.Nodes))
		}
		want, s := engine+" "+reason, status.Nodes[0]
		for from, got := range map[string]string{"agent": r.Engine + " " + r.Reason, "node": object, "status": s.Engine + " " + s.Reason} {
			if got != want {
				return fmt.Errorf("%s says %q (%s)", from, got, r.Message)
			}
		}
		return nil
	})
}

// rolledOut waits until the agent is of the DaemonSet's last change, and Ready.
// kubectl rollout status would wait for minReadySeconds on top, which says
// something of fleets.
func (c *cluster) rolledOut(t *testing.T) {
	t.Helper()
	eventually(t, c.patience(10*time.Minute), "the agent is rolled out", func() error {
		d, err := decode[struct {
			Metadata struct{ Generation int64 }
			Status   struct {
				ObservedGeneration                                          int64
				DesiredNumberScheduled, UpdatedNumberScheduled, NumberReady int
			}
		}](c, "kubectl -n temper-system get daemonset temper-agent -o json")
		s := d.Status
		if err == nil && (s.ObservedGeneration < d.Metadata.Generation || s.DesiredNumberScheduled == 0 ||
			s.UpdatedNumberScheduled < s.DesiredNumberScheduled || s.NumberReady < s.DesiredNumberScheduled) {
			err = fmt.Errorf("it says %+v", d)
		}
		return err
	})
}

// eventually polls until ok or the time is over. Polling takes CPU time from the
// machine: it does so once a second.
func eventually(t *testing.T, within time.Duration, what string, ok func() error) time.Duration {
	t.Helper()
	start := time.Now()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		err := ok()
		if err == nil {
			took := time.Since(start)
			t.Logf("%s: after %v", what, took.Round(time.Millisecond))
			return took
		}
		if time.Since(start) > within {
			t.Fatalf("%s: not within %v: %v", what, within, err)
		}
		<-tick.C
	}
}
