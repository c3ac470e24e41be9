// SPDX-License-Identifier: Apache-2.0

// Command init is process 1 of a guest: it mounts what a Linux system has,
// runs one command, tells the host how it ended, and powers the machine off.
// It uses nothing but the standard library, so that guest can build it
// anywhere from the sources it embeds.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/temper-sched/temper/internal/guest/wire"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "init: runs only as process 1 of a guest")
		os.Exit(2)
	}
	for _, err := range setup() {
		// The console is all there is so far; what is missing shows when the
		// command needs it.
		fmt.Fprintln(os.Stderr, "temper-init:", err)
	}
	p, err := openPort()
	if err != nil {
		panic(err) // the kernel panics with us, and the host shows its console
	}
	result := run(p)
	if err := sendOut(p); err != nil {
		result.OutError = err.Error()
	}
	p.sendJSON(wire.End, result)
	_ = syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF)
}

// run runs the job and returns how it ended.
func run(p *port) (result wire.Result) {
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	result.Release = trimLine(release)
	var job wire.Job
	b, err := os.ReadFile(wire.JobPath)
	if err == nil {
		err = json.Unmarshal(b, &job)
	}
	if err != nil {
		result.StartError = err.Error()
		return result
	}
	if job.CheckTimers {
		awaitTimers()
		p.send(wire.Ready, nil)
	}
	result.StartedNs = uptime()
	proc, relays, err := start(p, job)
	if err != nil {
		result.StartError = err.Error()
		return result
	}
	status := reap(proc.Pid)
	result.EndedNs = uptime()
	relays.wait()
	result.Code = status.ExitStatus()
	if status.Signaled() {
		result.Signal = int(status.Signal())
		result.Code = 128 + result.Signal
	}
	return result
}

// start starts the job with its output relayed to the port.
func start(p *port, job wire.Job) (*os.Process, *relays, error) {
	stdin, err := os.Open(wire.StdinPath)
	if err != nil {
		if stdin, err = os.Open("/dev/null"); err != nil {
			return nil, nil, err
		}
	}
	defer stdin.Close()
	r := &relays{done: make(chan struct{}, 2)}
	stdout, err := r.add(p, wire.Stdout)
	if err != nil {
		return nil, nil, err
	}
	defer stdout.Close()
	stderr, err := r.add(p, wire.Stderr)
	if err != nil {
		return nil, nil, err
	}
	defer stderr.Close()
	proc, err := os.StartProcess(job.Path, job.Args, &os.ProcAttr{
		Dir: job.Dir, Env: job.Env, Files: []*os.File{stdin, stdout, stderr},
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	return proc, r, err
}

// reap collects every orphan that ends before the process we are here for.
func reap(pid int) syscall.WaitStatus {
	for {
		var status syscall.WaitStatus
		got, err := syscall.Wait4(-1, &status, 0, nil)
		if err == nil && got == pid && (status.Exited() || status.Signaled()) {
			return status
		}
	}
}

// relays copy the command's output to the port.
type relays struct {
	n    int
	done chan struct{}
}

// linger is how long output is still awaited after the command ended: a
// daemon it left behind keeps the pipe open for ever.
const linger = 200 * time.Millisecond

func (r *relays) add(p *port, k wire.Kind) (*os.File, error) {
	from, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	r.n++
	go func() {
		buf := make([]byte, wire.MaxPayload)
		for {
			n, err := from.Read(buf)
			if n > 0 {
				p.send(k, buf[:n])
			}
			if err != nil {
				r.done <- struct{}{}
				return
			}
		}
	}()
	return to, nil
}

func (r *relays) wait() {
	late := time.After(linger)
	for range r.n {
		select {
		case <-r.done:
		case <-late:
			return
		}
	}
}

// port is the way to the host.
type port struct {
	mu  sync.Mutex
	fd  int
	buf []byte
}

// portWait is how long the virtio port may take to appear; its driver probes
// it from a work queue.
const portWait = 30 * time.Second

func openPort() (*port, error) {
	var fd int
	var err error
	for end := time.Now().Add(portWait); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if fd, err = syscall.Open("/dev/vport0p1", syscall.O_WRONLY|syscall.O_CLOEXEC, 0); err == nil {
			return &port{fd: fd}, nil
		}
	}
	return nil, fmt.Errorf("open port to the host: %w", err)
}

func (p *port) send(k wire.Kind, payload []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.buf = wire.Append(p.buf[:0], k, payload)
	for b := p.buf; len(b) > 0; {
		n, err := syscall.Write(p.fd, b)
		if err != nil && !errors.Is(err, syscall.EINTR) && !errors.Is(err, syscall.EAGAIN) {
			panic(fmt.Errorf("write to the host: %w", err))
		}
		b = b[max(n, 0):]
	}
}

func (p *port) sendJSON(k wire.Kind, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	p.send(k, b)
}

// sendOut sends every regular file below OutDir.
func sendOut(p *port) error {
	return filepath.WalkDir(wire.OutDir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(wire.OutDir, path)
		if err != nil {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		p.send(wire.File, []byte(rel))
		_, err = io.CopyBuffer(dataWriter{p}, struct{ io.Reader }{f}, make([]byte, wire.MaxPayload))
		return err
	})
}

// dataWriter sends what is written to it as content of the current file.
type dataWriter struct{ p *port }

func (w dataWriter) Write(b []byte) (int, error) {
	w.p.send(wire.Data, b)
	return len(b), nil
}
