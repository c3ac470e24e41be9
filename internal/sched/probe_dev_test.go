package sched

import "testing"

func TestDevAblate(t *testing.T) {
	requireGuest(t)
	pipeSwitch(t)
	t.Logf("none %v", pipeSwitch(t))
	p := startProbe(t, ProbeConfig{})
	pipeSwitch(t)
	t.Logf("all %v", pipeSwitch(t))
	p.links[2].Close()
	pipeSwitch(t)
	t.Logf("without waking %v", pipeSwitch(t))
	p.links[1].Close()
	pipeSwitch(t)
	t.Logf("without waking, switch %v", pipeSwitch(t))
	p.Close()
	p = startProbe(t, ProbeConfig{})
	p.links[1].Close()
	pipeSwitch(t)
	t.Logf("without switch %v", pipeSwitch(t))
}
