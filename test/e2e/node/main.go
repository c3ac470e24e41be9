// SPDX-License-Identifier: Apache-2.0

// Command node makes a guest a Kubernetes node: it brings up network, containerd
// and kubelet, and then serves this host's test: commands to run, and tunnels
// into the guest's network. It is also the process of a pod's sandbox ("node
// pause"), and a sched_ext scheduler that is not Temper's ("node foreign").
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/temper-sched/temper/internal/bench/spin"
	"github.com/temper-sched/temper/internal/sched/schedtest"
	"github.com/temper-sched/temper/test/e2e/place"
)

func main() {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if len(os.Args) == 2 {
		if err := stand(os.Args[1]); err != nil {
			log.Error("cannot stand in", "for", os.Args[1], "err", err)
			os.Exit(1)
		}
		return
	}
	api := flag.String("api", "", "this host's address of the API server")
	service := flag.String("service", "", "the cluster's address of the API server")
	now := flag.Int64("virtual", 0, "time is virtual, and it is so many seconds since 1970")
	flag.Parse()
	err := error(nil)
	if *now != 0 {
		err = keepTime(*now)
	}
	if err == nil {
		err = run(context.Background(), log, *api, *service)
	}
	if err != nil {
		log.Error("node ended", "err", err)
		os.Exit(1)
	}
}

// stand is a sandbox's process or another scheduler until it is told to end.
func stand(as string) error {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	switch as {
	case "pause":
	case "foreign":
		foreign, err := schedtest.AttachForeign(as)
		if err != nil {
			return err
		}
		defer foreign.Close()
	default:
		return fmt.Errorf("unknown role %q", as)
	}
	<-end
	return nil
}

func run(ctx context.Context, log *slog.Logger, api, service string) error {
	if err := system(ctx); err != nil {
		return err
	}
	if err := enterSlice("node"); err != nil {
		return err
	}
	failed := make(chan error, 4)
	go func() { failed <- serve(log) }()
	go func() { failed <- forward(ctx, service, api) }()
	if err := (daemon{name: "containerd", path: "/usr/bin/containerd"}).start(failed); err != nil {
		return err
	}
	if err := importImages(ctx); err != nil {
		return err
	}
	err := daemon{name: "kubelet", path: place.Kubelet, restart: true, args: []string{
		"--config=" + place.KubeletConfig, "--kubeconfig=" + place.Kubeconfig,
		"--hostname-override=" + place.NodeName, "--node-ip=" + place.NodeIP, "--root-dir=/var/lib/kubelet", "--v=2",
	}}.start(failed)
	if err != nil {
		return err
	}
	return <-failed
}

// system makes of the guest what init systems make of a machine.
func system(ctx context.Context) error {
	if err := leaveRootfs(); err != nil {
		return err
	}
	if err := loadModules(); err != nil {
		return err
	}
	// Kubelet measures the file system that it is on, which the first root's
	// kind does not let it do.
	if err := unix.Mount("tmpfs", "/var/lib", "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mount /var/lib: %w", err)
	}
	// Pods get a copy; nobody asks for names.
	if err := os.WriteFile("/etc/resolv.conf", nil, 0o644); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"ip", "address", "add", place.NodeIP + "/24", "dev", "eth0"},
		{"ip", "link", "set", "eth0", "up"},
		{"ip", "route", "add", "default", "via", place.HostIP},
		{"sysctl", "-q", "-w", "net.ipv4.ip_forward=1"},
	} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("run %v: %w: %s", args, err, out)
		}
	}
	return nil
}

// leaveRootfs gives this process a root that containers can pivot away from:
// the kernel's first one has no parent. All mounts are shared, as by systemd.
func leaveRootfs() error {
	const root = "/newroot"
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"bind root", func() error { return unix.Mount("/", root, "", unix.MS_BIND|unix.MS_REC, "") }},
		{"enter root", func() error { return unix.Chdir(root) }},
		{"move root", func() error { return unix.Mount(root, "/", "", unix.MS_MOVE, "") }},
		{"change root", func() error { return unix.Chroot(".") }},
		{"share root", func() error { return unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, "") }},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

// keepTime sets the clock, and keeps the last CPU busy. Without any work virtual
// time leaps, and whoever waits for what is outside of the guest waits in vain.
// The process is called place.Busy, and belongs to the instrument.
func keepTime(now int64) error {
	if err := unix.Settimeofday(&unix.Timeval{Sec: now}); err != nil {
		return fmt.Errorf("set clock: %w", err)
	}
	path := filepath.Join("/run", place.Busy)
	if err := spin.Install(path); err != nil {
		return err
	}
	var all, last unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return fmt.Errorf("read own CPUs: %w", err)
	}
	last.Set(runtime.NumCPU() - 1)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.SchedSetaffinity(0, &last); err != nil {
		return fmt.Errorf("bind thread: %w", err)
	}
	cgroup, err := slice("client")
	if err != nil {
		return err
	}
	defer cgroup.Close()
	busy := exec.Command(path)
	busy.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(cgroup.Fd())}
	if err := busy.Start(); err != nil {
		return fmt.Errorf("start %s: %w", path, err)
	}
	go busy.Wait() //nolint:errcheck // it runs as long as the machine
	return unix.SchedSetaffinity(0, &all)
}

// loadModules loads the kernel's modules in the order of their names.
func loadModules() error {
	files, err := filepath.Glob(place.Modules + "/*.ko")
	if err != nil {
		return err
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		f.Close()
		if err != nil {
			return fmt.Errorf("load module %s: %w", name, err)
		}
	}
	return nil
}

// daemon is a program that runs as long as the node, with its log in place.Logs.
type daemon struct {
	name, path string
	args       []string
	// restart says that it may end, and is then started again.
	restart bool
}

// start starts the daemon, and goes on to do so. What is not to be restarted
// must not end.
func (d daemon) start(failed chan<- error) error {
	if err := os.MkdirAll(place.Logs, 0o755); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(place.Logs, d.name))
	if err != nil {
		return err
	}
	cmd, err := d.run(log)
	if err != nil {
		return err
	}
	go func() {
		for {
			end := cmd.Wait()
			if !d.restart {
				said, _ := os.ReadFile(log.Name())
				failed <- fmt.Errorf("run %s: it ended: %v\n%s", d.name, end, said[max(0, len(said)-4000):]) //nolint:errorlint // nil as well
				return
			}
			if cmd, err = d.run(log); err != nil {
				failed <- err
				return
			}
		}
	}()
	return nil
}

// run starts the daemon's process, in a cgroup of its own.
func (d daemon) run(log *os.File) (*exec.Cmd, error) {
	cgroup, err := slice(d.name)
	if err != nil {
		return nil, err
	}
	defer cgroup.Close()
	cmd := exec.Command(d.path, d.args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(cgroup.Fd())}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", d.name, err)
	}
	return cmd, nil
}

// slice makes and opens the cgroup of one of the node's own services.
func slice(name string) (*os.File, error) {
	dir := filepath.Join("/sys/fs/cgroup/system.slice", name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make cgroup: %w", err)
	}
	return os.Open(dir)
}

// enterSlice moves this process to a cgroup of its own.
func enterSlice(name string) error {
	cgroup, err := slice(name)
	if err != nil {
		return err
	}
	defer cgroup.Close()
	procs := filepath.Join(cgroup.Name(), "cgroup.procs")
	if err := os.WriteFile(procs, []byte("0"), 0); err != nil {
		return fmt.Errorf("enter cgroup: %w", err)
	}
	return nil
}

// importImages waits for containerd and gives it the images.
func importImages(ctx context.Context) error {
	archives, err := filepath.Glob(place.Images + "/*.tar")
	if err != nil {
		return err
	}
	for _, archive := range archives {
		if err := importImage(ctx, archive); err != nil {
			return err
		}
	}
	return nil
}

func importImage(ctx context.Context, archive string) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for left := 60; ; left-- {
		out, err := exec.CommandContext(ctx, "ctr", "-n", "k8s.io", "images", "import", "--local", archive).CombinedOutput()
		if err == nil || left == 0 {
			if err != nil {
				err = fmt.Errorf("import image %s: %w: %s", archive, err, out)
			}
			return err
		}
		<-tick.C
	}
}
