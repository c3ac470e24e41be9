// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/temper-sched/temper/internal/cgroup"
	"github.com/temper-sched/temper/internal/kube/kubetest"
	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/tier"
)

const kubepods = cgroup.Root + "/kubepods"

// makeKubepods makes the cgroups that kubelet's cgroupfs driver makes at its start.
func (b *bed) makeKubepods() {
	b.t.Helper()
	enableCPU(b, cgroup.Root)
	for _, dir := range []string{kubepods, kubepods + "/burstable", kubepods + "/besteffort"} {
		b.mkdir(dir)
		enableCPU(b, dir)
	}
	b.t.Cleanup(func() {
		b.removePods()
		for _, dir := range []string{kubepods + "/besteffort", kubepods + "/burstable", kubepods} {
			if err := os.Remove(dir); err != nil {
				b.t.Error(err)
			}
		}
	})
}

func enableCPU(b *bed, dir string) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+cpu"), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) mkdir(dir string) {
	b.t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		b.t.Fatal(err)
	}
}

// pod is a pod with threads in its cgroup.
type pod struct {
	kubetest.Pod
	b   *bed
	dir string // of its cgroup; its container's is below
	run []*exec.Cmd
}

// pod makes a pod as it comes to a node: the API server tells of it, kubelet
// makes its cgroups, and the runtime starts a process in them.
func (b *bed) pod(s kubetest.Pod) *pod {
	b.t.Helper()
	p := b.told(s)
	p.makeCgroup()
	p.spawn("sleep", "3600")
	return p
}

// told is a pod that only the API server knows.
func (b *bed) told(s kubetest.Pod) *pod {
	if s.UID == "" {
		s.UID = kubetest.UID(len(b.pods) + 1)
	}
	dir := map[string]string{"Guaranteed": kubepods, "Burstable": kubepods + "/burstable", "BestEffort": kubepods + "/besteffort"}[s.Quality()]
	p := &pod{Pod: s, b: b, dir: dir + "/pod" + s.UID}
	b.pods = append(b.pods, p)
	b.api.Put("pods/"+s.UID, s.Object())
	return p
}

func (p *pod) makeCgroup() {
	p.b.t.Helper()
	p.b.mkdir(p.dir)
	enableCPU(p.b, p.dir)
	p.b.mkdir(p.dir + "/main")
}

// spawn starts a process in the pod's container.
func (p *pod) spawn(name string, args ...string) {
	p.b.t.Helper()
	group, err := os.Open(p.dir + "/main")
	if err != nil {
		p.b.t.Fatal(err)
	}
	defer group.Close()
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd()), Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		p.b.t.Fatal(err)
	}
	p.run = append(p.run, cmd)
}

// spin adds a thread that never sleeps.
func (p *pod) spin() {
	p.b.t.Helper()
	p.spawn("sh", "-c", "while :; do :; done")
}

// removeCgroup ends the pod's processes and removes its cgroup, as a restart does.
func (p *pod) removeCgroup() {
	p.b.t.Helper()
	for _, cmd := range p.run {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	p.run = nil
	for _, dir := range []string{p.dir + "/main", p.dir} {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			p.b.t.Errorf("remove cgroup: %v", err)
		}
	}
}

// gone removes the pod altogether.
func (p *pod) gone() {
	p.b.t.Helper()
	p.removeCgroup()
	p.b.api.Drop("pods/" + p.UID)
}

func (b *bed) removePods() {
	for _, p := range b.pods {
		p.removeCgroup()
	}
	b.pods = nil
}

// id is the cgroup's id as the kernel side knows it, 0 if it is gone.
func id(dir string) uint64 {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return 0
	}
	return st.Ino
}

// group is the pod's own group in the plan in force.
func (p *pod) group() (policy.Group, bool) {
	p.b.t.Helper()
	g, ok := p.b.plan()[id(p.dir)]
	return g, ok
}

// in tells whether the plan in force has the pod in that tier.
func (p *pod) in(want tier.Tier) bool {
	g, ok := p.group()
	return ok && g.Tier == want
}

// snapshot is every file of the cgroups that somebody may have set.
func snapshot(b *bed) map[string]string {
	b.t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(kubepods, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || counts(d.Name()) {
			return err
		}
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
			return nil // written only
		}
		files[path] = string(text)
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return files
}

// counts tells the files that change by themselves.
func counts(name string) bool {
	return strings.HasSuffix(name, "stat") || strings.HasSuffix(name, ".pressure") || strings.HasSuffix(name, ".local") ||
		strings.Contains(name, ".current") || strings.Contains(name, ".peak") || strings.Contains(name, ".events")
}
