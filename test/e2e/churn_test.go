// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/temper-sched/temper/test/e2e/place"
)

const (
	churnRate    = 50 // pods made and removed in a second
	churnSeconds = 60
)

// testChurn makes and removes pods faster than any kubelet could: their objects
// and cgroups alone, while kubelet is held. A new kubelet comes afterwards, which
// knows nothing of them: the old one would be busy with them for minutes.
func testChurn(t *testing.T, c *cluster) {
	c.undisturbed(t, func() {
		before, generation := c.agentPod(t), c.generation(t)
		start := time.Now()
		c.node.sh(t, "kill -STOP $(pidof kubelet)")
		t.Cleanup(func() { c.restartKubelet(t) })
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		var last []string
		for second := range churnSeconds {
			made := c.makePods(t, second)
			c.node.sh(t, cgroupScript(made, last))
			c.removePods(t, second-1)
			last = made
			<-tick.C
		}
		c.node.sh(t, cgroupScript(nil, last))
		c.removePods(t, churnSeconds-1)
		plans := c.generation(t) - generation
		t.Logf("%d pods in %v, %d plans", churnRate*churnSeconds, time.Since(start).Round(time.Second), plans)
		if plans < churnSeconds/slack {
			t.Errorf("the agent applied %d plans, so it did not follow the pods", plans)
		}
		c.want(t, attached, "Attached")
		if after := c.agentPod(t); after != before {
			t.Errorf("the agent is %s, before it was %s", after, before)
		}
	})
}

// restartKubelet returns when another one answers.
func (c *cluster) restartKubelet(t *testing.T) {
	t.Helper()
	c.node.sh(t, "old=$(pidof kubelet); kill -KILL $old; for i in $(seq 60); do new=$(pidof kubelet) && [ $new != $old ] && exit; sleep 1; done; exit 1")
	eventually(t, 5*time.Minute, "another kubelet answers", func() error {
		_, err := c.try("kubectl get --raw /api/v1/nodes/" + place.NodeName + "/proxy/healthz && kubectl wait --for=condition=Ready node/" + place.NodeName + " --timeout=1s")
		return err
	})
}

// generation counts the plans applied since the attach.
func (c *cluster) generation(t *testing.T) uint64 {
	t.Helper()
	r, err := c.report()
	if err != nil {
		t.Fatal(err)
	}
	return r.State.Generation
}

const churnPath = "/api/v1/namespaces/default/pods"

func churnName(second, i int) string { return fmt.Sprintf("churn-%d-%d", second, i) }

// makePods makes one second's pods, bound to the node, and returns their UIDs.
func (c *cluster) makePods(t *testing.T, second int) []string {
	t.Helper()
	var uids []string
	for i := range churnRate {
		pod := map[string]any{
			"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": churnName(second, i)},
			"spec": map[string]any{
				"nodeName": place.NodeName, "containers": []map[string]any{{"name": "none", "image": podImage}},
			},
		}
		var made struct{ Metadata struct{ UID string } }
		if err := c.plane.Do(t.Context(), http.MethodPost, churnPath, pod, &made); err != nil {
			t.Fatal(err)
		}
		uids = append(uids, made.Metadata.UID)
	}
	return uids
}

func (c *cluster) removePods(t *testing.T, second int) {
	t.Helper()
	if second < 0 {
		return
	}
	for i := range churnRate {
		path := churnPath + "/" + churnName(second, i) + "?gracePeriodSeconds=0"
		if err := c.plane.Do(t.Context(), http.MethodDelete, path, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// cgroupScript makes and removes pods' cgroups, each with a container's.
func cgroupScript(made, gone []string) string {
	script := "cd /sys/fs/cgroup/kubepods/besteffort\n"
	if len(made) > 0 {
		script += "mkdir -p " + podDirs(made, "/c") + "\n"
	}
	if len(gone) > 0 {
		script += "rmdir " + podDirs(gone, "/c") + " " + podDirs(gone, "") + "\n"
	}
	return script
}

func podDirs(uids []string, below string) string {
	var out []string
	for _, uid := range uids {
		out = append(out, "pod"+uid+below)
	}
	return strings.Join(out, " ")
}
