// SPDX-License-Identifier: Apache-2.0

package guest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/guest"
)

// bootLimit bounds one guest; on a loaded host without KVM a boot takes half a
// minute.
const bootLimit = 3 * time.Minute

// needGuests skips a test that boots machines unless everything is asked for:
// they take a minute together and download kernels.
func needGuests(t *testing.T) {
	t.Helper()
	if os.Getenv("REQUIRE_ALL") != "1" {
		t.Skip("boots guests; set REQUIRE_ALL=1 to run it")
	}
}

// describe prints what the host can check about a guest.
const describe = `
echo release $(uname -r)
echo online $(cat /sys/devices/system/cpu/online)
for c in 0 1 2 3 4 5 6 7; do
	d=/sys/devices/system/cpu/cpu$c
	[ -d $d ] && echo cpu$c core $(cat $d/topology/core_cpus_list) llc $(cat $d/cache/index3/shared_cpu_list)
done
for n in /sys/devices/system/node/node*; do echo ${n##*/} $(cat $n/cpulist); done
echo controllers $(cat /sys/fs/cgroup/cgroup.subtree_control | tr ' ' '\n' | sort)
echo bpffs $(stat -c %a /sys/fs/bpf)
[ -e /sys/kernel/sched_ext ] && echo sched_ext
id -u temper
`

func run(t *testing.T, c *guest.Cmd) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bootLimit)
	defer cancel()
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run(ctx)
	p := c.Provenance()
	t.Logf("%s on %s, clock %s: boot %v", p.KernelRelease, p.Accel, p.Clock, p.Boot)
	return out.String(), err
}

func TestKernels(t *testing.T) {
	needGuests(t)
	topologies := []string{"1s2c2t", "2s2c1t", "1s4c1t", "2s2c2t"}
	for i, name := range guest.Kernels() {
		t.Run(name, func(t *testing.T) {
			topology := topologies[i%len(topologies)]
			c := guest.Command(guest.Machine{Kernel: name, Topology: topology}, "/bin/sh", "-c", describe+"exit 7")
			out, err := run(t, c)
			if exit, ok := errors.AsType[*guest.ExitError](err); !ok || exit.Code != 7 {
				t.Fatalf("got %v, want exit status 7; output:\n%s", err, out)
			}
			want := append(shape[topology], "release "+c.Provenance().KernelRelease, "controllers cpu cpuset io memory pids", "bpffs 1777", "\n1000\n")
			for _, w := range want {
				if !strings.Contains(out, w) {
					t.Errorf("no %q in\n%s", w, out)
				}
			}
			if got := strings.Contains(out, "\nsched_ext\n"); got != (name != "6.12") {
				t.Errorf("sched_ext in the kernel: %v", got)
			}
		})
	}
}

// shape is what a guest's sysfs must show for a topology.
var shape = map[string][]string{
	"1s2c2t": {"online 0-3", "cpu0 core 0-1 llc 0-3", "cpu3 core 2-3 llc 0-3", "node0 0-3"},
	"2s2c1t": {"online 0-3", "cpu1 core 1 llc 0-1", "cpu2 core 2 llc 2-3", "node0 0-1", "node1 2-3"},
	"1s4c1t": {"online 0-3", "cpu3 core 3 llc 0-3", "node0 0-3"},
	"2s2c2t": {"online 0-7", "cpu0 core 0-1 llc 0-3", "cpu7 core 6-7 llc 4-7", "node1 4-7"},
}

func TestStandardInputAndFilesGoBothWays(t *testing.T) {
	needGuests(t)
	host := t.TempDir()
	if err := os.WriteFile(filepath.Join(host, "in"), []byte("from a file\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	c := guest.Command(guest.Machine{Files: map[string]string{"/data": host}}, "/bin/sh", "-c",
		`cat - in; echo "$SAY" >&2; mkdir $OUT/sub; head -c 100000 /dev/zero >$OUT/sub/zeros`)
	c.Dir, c.Env, c.Out = "/data", []string{"SAY=from the environment"}, t.TempDir()
	c.Stdin = strings.NewReader("from standard input\n")
	out, err := run(t, c)
	said := slices.Sorted(strings.Lines(out)) // two streams have no order
	if err != nil || !slices.Equal(said, []string{"from a file\n", "from standard input\n", "from the environment\n"}) {
		t.Errorf("got %q, %v", out, err)
	}
	if st, err := os.Stat(filepath.Join(c.Out, "sub", "zeros")); err != nil || st.Size() != 100000 {
		t.Errorf("file from the guest: %v", err)
	}
}

func TestPackagesBringTheirLibraries(t *testing.T) {
	needGuests(t)
	c := guest.Command(guest.Machine{Packages: []string{"memcached"}}, "/usr/bin/memcached", "--version")
	out, err := run(t, c)
	if err != nil || !strings.HasPrefix(out, "memcached 1.") {
		t.Errorf("got %q, %v", out, err)
	}
	if c.Provenance().Packages["memcached"] == "" {
		t.Error("the package's version is not in the provenance")
	}
}

// A guest with a network reaches this host, through modules of its kernel; the
// oldest kernel has them in its own package, the newest beside it.
func TestModulesAndNetwork(t *testing.T) {
	needGuests(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello, guest\n")
	}))
	defer server.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(server.URL, "http://"), ":")
	for _, kernel := range []string{"7.2", "6.12"} {
		t.Run(kernel, func(t *testing.T) {
			m := guest.Machine{Kernel: kernel, Modules: []string{"virtio_net"}, Forward: map[int]int{freePort(t): 1}, Suite: "forky"}
			c := guest.Command(m, "/bin/sh", "-euc", `
for m in `+guest.ModulesDir+`/*.ko; do insmod $m; done
ip address add 10.0.2.15/24 dev eth0
ip link set eth0 up
wget -q -O - http://10.0.2.2:`+port)
			if out, err := run(t, c); err != nil || out != "hello, guest\n" {
				t.Errorf("got %q, %v", out, err)
			}
		})
	}
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

func TestPanicIsTold(t *testing.T) {
	needGuests(t)
	_, err := run(t, guest.Command(guest.Machine{}, "/bin/sh", "-c", "echo c >/proc/sysrq-trigger; sleep 60"))
	if p, ok := errors.AsType[*guest.PanicError](err); !ok || !strings.Contains(p.Console, "sysrq triggered crash") {
		t.Errorf("got %v, want the panic", err)
	}
}

func TestHangIsATimeout(t *testing.T) {
	needGuests(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	err := guest.Command(guest.Machine{}, "/bin/sleep", "3600").Run(ctx)
	if _, ok := errors.AsType[*guest.TimeoutError](err); !ok || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want a timeout", err)
	}
}

// Two runs with one seed differ in nothing, and a third with another does.
func TestDeterministicRunsAreIdentical(t *testing.T) {
	needGuests(t)
	once := func(seed int) string {
		c := guest.Command(guest.Machine{Mode: guest.Deterministic, Topology: "1s2c1t", Seed: seed}, "/bin/sh", "-c",
			"cat /proc/interrupts /proc/schedstat /proc/uptime; date; head -c 16 /dev/urandom | od -x")
		out, err := run(t, c)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	first := once(1)
	if second := once(1); second != first {
		t.Errorf("two runs with one seed differ:\n%s\n%s", first, second)
	}
	if other := once(2); other == first {
		t.Error("another seed changes nothing")
	}
}

func TestMachineIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		machine guest.Machine
		want    string
	}{
		"unknown kernel":   {guest.Machine{Kernel: "5.10"}, `resolve kernel "5.10": want one of`},
		"unknown topology": {guest.Machine{Topology: "4"}, `parse topology "4"`},
	} {
		t.Run(name, func(t *testing.T) {
			err := guest.Command(tc.machine, "/bin/true").Run(t.Context())
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
