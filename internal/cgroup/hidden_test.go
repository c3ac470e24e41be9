// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// TestHiddenCgroups has a pod and a container of another that closed their cgroups:
// the rest of the node is seen as before.
func TestHiddenCgroups(t *testing.T) {
	root := t.TempDir()
	for name, content := range map[string]string{
		"cgroup.controllers":              "cpuset cpu\n",
		"kubepods/cgroup.events":          "populated 1\n",
		"kubepods/cpuset.cpus.effective":  "0-3\n",
		"kubepods/poda/closed/cpu.max":    "100000 100000\n",
		"kubepods/poda/open/cpuset.cpus":  "2-3\n",
		"kubepods/podb/app/cpuset.cpus":   "0-1\n",
		"kubepods/podc/cpu.max":           "50000 100000\n",
		"kubepods/podc/cpu.max.burst":     "0\n",
		"kubepods/podc/app/cpuset.cpus":   "0-1\n",
		"a.slice/user.service/x/cpu.max":  "max 100000\n",
		"system.slice/ssh.service/a.file": "",
	} {
		file := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"kubepods/poda/closed", "kubepods/podb", "a.slice/user.service"} {
		dir := filepath.Join(root, name)
		if err := os.Chmod(dir, 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(dir, 0o755) })
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the thread ends with what it gave up
		if err := giveUpDAC(); err != nil {
			t.Error(err)
			return
		}
		checkHidden(t, root)
	}()
	<-done
}

func checkHidden(t *testing.T, root string) {
	if _, err := os.ReadDir(filepath.Join(root, "kubepods/podb")); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("nothing is hidden, and the test shows nothing: %v", err)
	}
	tree, err := Open(root)
	if err != nil {
		t.Error(err)
		return
	}
	k, err := tree.Kubepods()
	if err != nil || k.Root != "/kubepods" {
		t.Errorf("found %+v, %v", k, err)
	}
	pods, err := tree.Pods(k)
	if err == nil {
		err = tree.ReadCpusets(k, pods)
	}
	cpus := map[string][]int{}
	for _, p := range pods {
		cpus[p.UID] = p.CPUs
	}
	if diff := cmp.Diff(map[string][]int{"a": {2, 3}, "b": nil, "c": {0, 1}}, cpus); diff != "" || err != nil {
		t.Errorf("CPUs of pods: %v (-want +got):\n%s", err, diff)
	}

	limits, err := tree.Limits()
	if len(limits) != 1 || limits[0].Cgroup != "/kubepods/podc" || !errors.Is(err, fs.ErrPermission) {
		t.Errorf("limits %+v, %v; want podc's, and that others are hidden", limits, err)
	}
	paths, err := tree.Paths()
	seen := map[string]bool{}
	for _, p := range paths {
		seen[p] = true
	}
	if err != nil || len(seen) != 12 || !seen["/kubepods/podb"] || !seen["/kubepods/poda/closed"] || !seen["/system.slice/ssh.service"] {
		t.Errorf("paths: %v, %v", seen, err)
	}
	if _, err := tree.Usage("/kubepods/podb"); !IsGone(err) {
		t.Errorf("CPU time of a hidden cgroup: %v", err)
	}
	if _, err := tree.list("/kubepods/podb"); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("a hidden parent of pods has none: %v", err)
	}
}

// giveUpDAC leaves this thread the agent's rights on files: those of uid 0 that
// modes give.
func giveUpDAC() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	data[0].Effective &^= 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH
	return unix.Capset(&header, &data[0])
}
