// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/tier"
	"github.com/temper-sched/temper/test/e2e/place"
)

const (
	attached = "attached"
	observe  = "observe"
	safe     = "safe"
)

// TestNode takes a node through its life. Each part but the last leaves the
// engine attached, and runs alone, too: make e2e RUN=TestNode/upgrade.
func TestNode(t *testing.T) {
	c := startCluster(t, machineSpec{kernel: "7.2"})
	c.install(t)
	for _, part := range []struct {
		name string
		run  func(*testing.T, *cluster)
	}{
		{"status", testStatus},
		{"pods", testPods},
		{"safe-mode", testSafeMode},
		{"agent-deleted", testAgentDeleted},
		{"agent-killed", testAgentKilled},
		{"agent-stopped", testAgentStopped},
		{"upgrade", testUpgrade},
		{"api-server-away", testAPIServerAway},
		{"churn", testChurn},
		{"foreign-scheduler", testForeignScheduler},
		{"reboot", testReboot},
		{"uninstall", testUninstall},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.run(t, c) }) {
			t.Log(c.explainFailure())
		}
	}
}

// TestWithoutSchedExt: the agent runs on what it cannot schedule, and says
// why it does not.
func TestWithoutSchedExt(t *testing.T) {
	c := startCluster(t, machineSpec{kernel: "6.12"})
	c.follow(t, "install")
	c.want(t, observe, "NoSchedExt")
	c.enforce(t)
	c.want(t, observe, "NoSchedExt")
	c.follow(t, "uninstall")
}

// explainFailure is what a person would look at first.
func (c *cluster) explainFailure() string {
	out, err := c.try(`kubectl get pods -A -o wide; kubectl get events -A | tail -20
kubectl -n temper-system logs -l app.kubernetes.io/name=temper-agent --tail=40 --prefix || true; kubectl temper status -o wide || true`)
	return fmt.Sprint(out, errors.Join(err))
}

// kernelSays is the state of sched_ext in the node's kernel: enabled, and how
// often a scheduler was.
func (c *cluster) kernelSays(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(c.node.sh(t, "cd /sys/kernel/sched_ext && echo $(cat state enable_seq)"))
}

// undisturbed checks that the scheduler stayed attached during do.
func (c *cluster) undisturbed(t *testing.T, do func()) {
	t.Helper()
	before := c.kernelSays(t)
	do()
	if after := c.kernelSays(t); after != before || !strings.HasPrefix(after, "enabled") {
		t.Errorf("the kernel says %q, before it said %q", after, before)
	}
}

func testStatus(t *testing.T, c *cluster) {
	c.follow(t, "attached")
	events := c.host(t, "kubectl get events --field-selector involvedObject.kind=Node -o 'jsonpath={.items[*].reason}'")
	if !strings.Contains(events, "Attached") {
		t.Errorf("events of the node are %s, want Attached", events)
	}
	// The probe is loaded after the attach.
	eventually(t, time.Minute, "top has figures", func() error {
		top, err := decode[map[string]any](c, "kubectl temper top "+place.NodeName+" --once -o json")
		if err == nil && len(top) == 0 {
			err = errors.New("it says nothing")
		}
		return err
	})
}

// testPods: priority and QoS class decide, requests give fences.
func testPods(t *testing.T, c *cluster) {
	c.follow(t, "critical")
	c.host(t, "kubectl apply -f test/e2e/testdata/pods.yaml")
	t.Cleanup(func() { c.host(t, "kubectl delete -f test/e2e/testdata/pods.yaml --wait=false") })
	c.host(t, "kubectl wait --for=condition=Ready pod -l e2e=pods -A --timeout=10m")
	for pod, want := range map[string]struct {
		tier  tier.Tier
		fence int
	}{
		"-n default memcached": {tier.Critical, 1},
		"-n default spinner-1": {tier.Background, 0},
		"-n default spinner-2": {tier.Background, 0},
		"-n default burstable": {tier.Standard, 0},
		"-n kube-system $(kubectl -n kube-system get pods -l e2e=pods -o 'jsonpath={.items[0].metadata.name}')": {tier.Standard, 0},
	} {
		eventually(t, time.Minute, pod+" is "+want.tier.String(), func() error {
			got, err := c.explain(pod)
			switch {
			case err != nil:
				return err
			case got.Tier != want.tier || len(got.Fence) != want.fence || !strings.HasPrefix(got.Engine, attached):
				return fmt.Errorf("explain says %+v", got)
			}
			return nil
		})
	}
	// Nobody starves: the server answers beside spinners on every CPU.
	c.undisturbed(t, func() {
		ip := c.host(t, "kubectl get pod memcached -o 'jsonpath={.status.podIP}'")
		eventually(t, time.Minute, "memcached answers", func() error {
			said, err := c.node.try(t.Context(), nil, "/bin/sh", "-c", "echo version | nc -w 5 "+ip+" 11211")
			if err == nil && !strings.HasPrefix(said, "VERSION") {
				err = fmt.Errorf("it says %q", said)
			}
			return err
		})
	})
}

// explained is what kubectl temper explain says of a pod.
type explained struct {
	Tier   tier.Tier
	Fence  []int
	Engine string
}

func (c *cluster) explain(pod string) (explained, error) {
	return decode[explained](c, "kubectl temper explain -o json "+pod)
}

// detachWithin is the promise of safe mode.
const detachWithin = time.Second

func testSafeMode(t *testing.T, c *cluster) {
	c.follow(t, "safe-mode-on")
	eventually(t, detachWithin*slack, "the kernel's own scheduler runs the node", func() error {
		if state := c.kernelSays(t); !strings.HasPrefix(state, "disabled") {
			return fmt.Errorf("the kernel says %q", state)
		}
		return nil
	})
	c.want(t, safe, "SafeMode")
	if pins := c.node.sh(t, "ls /sys/fs/bpf"); strings.TrimSpace(pins) != "" {
		t.Errorf("pinned still: %s", pins)
	}
	c.follow(t, "safe-mode-off")
	c.want(t, attached, "Attached")
}

// agentPod changes when the agent's pod is replaced or its container restarted.
func (c *cluster) agentPod(t *testing.T) string {
	t.Helper()
	return c.host(t, "kubectl -n temper-system get pods -l app.kubernetes.io/name=temper-agent -o 'jsonpath={.items[*].metadata.uid} {.items[*].status.containerStatuses[0].restartCount}'")
}

func testAgentDeleted(t *testing.T, c *cluster) {
	c.undisturbed(t, func() {
		c.host(t, "kubectl -n temper-system delete pod -l app.kubernetes.io/name=temper-agent")
		c.rolledOut(t)
		c.want(t, attached, "Attached")
	})
}

func testAgentKilled(t *testing.T, c *cluster) {
	c.undisturbed(t, func() {
		before := c.agentPod(t)
		c.node.sh(t, "kill -KILL $(pidof temper-agent)")
		eventually(t, 5*time.Minute, "the agent is started again", func() error {
			if c.agentPod(t) == before {
				return errors.New("its restart was not counted")
			}
			return nil
		})
		c.want(t, attached, "Attached")
	})
}

// deadMan is the manifests' own.
const deadMan = 30 * time.Second

// testAgentStopped: nobody has to find out that an agent hangs.
func testAgentStopped(t *testing.T, c *cluster) {
	c.node.sh(t, "kill -STOP $(pidof temper-agent)")
	took := eventually(t, deadMan*slack, "the dead-man detached", func() error {
		if state := c.kernelSays(t); !strings.HasPrefix(state, "disabled") {
			return fmt.Errorf("the kernel says %q", state)
		}
		return nil
	})
	if took < deadMan/2 {
		t.Errorf("the dead-man detached after %v, want about %v", took, deadMan)
	}
	// Kubelet's probe ends the hung one.
	c.want(t, attached, "Attached")
}

func testUpgrade(t *testing.T, c *cluster) {
	c.undisturbed(t, func() {
		c.host(t, "kubectl -n temper-system set image daemonset/temper-agent agent=temper-agent:"+upgradeTag)
		c.rolledOut(t)
		c.want(t, attached, "Attached")
	})
}

// testAPIServerAway: longer than the dead-man's time.
func testAPIServerAway(t *testing.T, c *cluster) {
	c.undisturbed(t, func() {
		c.plane.StopAPI()
		<-time.After(deadMan + deadMan/2)
		if err := c.plane.StartAPI(t.Context()); err != nil {
			t.Fatal(err)
		}
		eventually(t, 5*time.Minute, "the agent has found the API server", func() error {
			r, err := c.report()
			if err == nil && !r.Connected {
				err = errors.New("it is not connected")
			}
			return err
		})
		c.want(t, attached, "Attached")
	})
}

func testForeignScheduler(t *testing.T, c *cluster) {
	c.follow(t, "safe-mode-on")
	c.want(t, safe, "SafeMode")
	c.node.sh(t, "node foreign >/run/log/foreign 2>&1 & echo $! >/run/foreign; for i in $(seq 60); do grep -q enabled /sys/kernel/sched_ext/state && exit; sleep 1; done; cat /run/log/foreign; exit 1")
	c.follow(t, "safe-mode-off")
	c.want(t, observe, "ForeignScheduler")
	if ops := c.node.sh(t, "cat /sys/kernel/sched_ext/root/ops"); strings.TrimSpace(ops) != "foreign" {
		t.Errorf("the node is scheduled by %q", ops)
	}
	c.node.sh(t, "kill $(cat /run/foreign)")
	c.want(t, attached, "Attached")
}

func testReboot(t *testing.T, c *cluster) {
	c.node.powerOff()
	c.boot(t)
	c.want(t, attached, "Attached")
}

// testUninstall: nothing is left in the cluster, whatever the state was, and on
// the node nothing that an agent was there to remove.
func testUninstall(t *testing.T, c *cluster) {
	for _, state := range []struct {
		name   string
		set    func()
		pinned string // what stays until a reboot
	}{
		{name: attached, set: func() {}},
		{name: observe, set: func() { c.follow(t, "install"); c.want(t, observe, "Observing") }},
		{name: safe, set: func() { c.install(t); c.follow(t, "safe-mode-on"); c.want(t, safe, "SafeMode") }},
		{name: "agent gone", set: func() {
			c.install(t)
			// Returns when its pods are gone, too.
			c.host(t, "kubectl -n temper-system delete daemonset temper-agent --cascade=foreground")
		}, pinned: "temper"},
	} {
		t.Run(state.name, func(t *testing.T) {
			state.set()
			c.follow(t, "uninstall")
			eventually(t, 2*deadMan*slack, "the node is as it was", func() error {
				left := strings.Join(strings.Fields(c.node.sh(t, "cat /sys/kernel/sched_ext/state; ls /sys/fs/bpf; ls /run/temper | grep ejects || true")), " ")
				if want := strings.TrimSpace("disabled " + state.pinned); left != want {
					return fmt.Errorf("left is %q, want %q", left, want)
				}
				return nil
			})
		})
	}
}
