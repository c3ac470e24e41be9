// SPDX-License-Identifier: Apache-2.0

// Temper-agent runs the scheduler on a Kubernetes node: it keeps the plan as the
// node's pods ask for it, and says on the node object what holds.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/temper-sched/temper/internal/agent"
	"github.com/temper-sched/temper/internal/cgroup"
	"github.com/temper-sched/temper/internal/config"
	"github.com/temper-sched/temper/internal/kube"
	"github.com/temper-sched/temper/internal/sched"
)

// The agent's share of a node: the pod's memory limit is a little above.
const (
	memoryLimit = 48 << 20
	threads     = 2
	// garbage may be three times what is in use, which is little, before the
	// collector runs: by default it would be a quarter of the agent's work.
	garbage = 300
)

// exitUsage is for flags and configuration. Whatever a node lacks is no failure.
const exitUsage = 2

type options struct {
	config, node, level, kubeconfig, listen, pinDir, runDir string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "temper-agent: %v\n", err)
		os.Exit(exitUsage)
	}
}

func newCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "temper-agent",
		Short: "Keep a Kubernetes node's scheduler as its pods ask for it",
		Long: `Keep a Kubernetes node's scheduler as its pods ask for it.

The agent never fails because of what a node lacks: it observes, and the node's
condition TemperReady, /status and the metrics say why nothing is attached. When it
ends, the scheduler stays for the next agent, or for the dead-man's time.`,
		Example:       "  temper-agent --config /etc/temper/agent.yaml --node-name $(hostname)",
		Version:       version(),
		Args:          cobra.NoArgs,
		SilenceErrors: true, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o, cmd.ErrOrStderr()) },
	}
	f := cmd.Flags()
	f.StringVar(&o.config, "config", "", "configuration `file`; all defaults without one")
	f.StringVar(&o.node, "node-name", os.Getenv("NODE_NAME"), "this node's name in the cluster; $NODE_NAME if not given")
	f.StringVar(&o.level, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig `file`; the pod's service account without one")
	f.StringVar(&o.listen, "listen", ":9464", "`address` of /healthz, /readyz, /metrics and /status")
	f.StringVar(&o.pinDir, "pin-dir", sched.DefaultPinDir, "where the scheduler is pinned, below a bpffs mount")
	f.StringVar(&o.runDir, "run-dir", agent.RunDir, "where locks, the safe-mode file and the record of ejects are")
	return cmd
}

func run(ctx context.Context, o options, stderr io.Writer) error {
	cfg, log, err := o.read(stderr)
	if err != nil {
		return err
	}
	runtime.GOMAXPROCS(threads)
	debug.SetMemoryLimit(memoryLimit)
	debug.SetGCPercent(garbage)
	cluster, err := kube.New(kube.Config{Kubeconfig: o.kubeconfig, NodeName: o.node, Thresholds: cfg.Tiers, Log: log})
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return err
	}
	log.InfoContext(ctx, "agent started", "node", o.node, "version", cfg.Version, "config", cfg.Agent)
	a := agent.New(cfg, agent.LiveMachine(cfg.PinDir), &agent.LiveCgroups{Root: cgroup.Root}, cluster, log)
	go func() {
		if err := a.Serve(ctx, listener); err != nil {
			log.ErrorContext(ctx, "nothing is served any more", "err", err)
		}
	}()
	if err := a.Run(ctx); err != nil {
		log.ErrorContext(ctx, "not everything was closed", "err", err)
	}
	return nil
}

// read checks everything that can be wrong with the command line.
func (o options) read(stderr io.Writer) (agent.Config, *slog.Logger, error) {
	cfg := agent.Config{Agent: config.DefaultAgent(), Node: o.node, Version: version(), Build: build(), RunDir: o.runDir}
	var level slog.Level
	errs := []error{level.UnmarshalText([]byte(o.level))}
	if o.pinDir == "" {
		errs = append(errs, errors.New("no pin directory: give --pin-dir"))
	} else {
		cfg.PinDir = filepath.Clean(o.pinDir)
	}
	if o.node == "" {
		errs = append(errs, errors.New("no node name: give --node-name or $NODE_NAME"))
	}
	if o.config != "" {
		text, err := os.ReadFile(o.config)
		if err == nil {
			cfg.Agent, err = config.ParseAgent(o.config, text)
		}
		errs = append(errs, err)
	}
	return cfg, slog.New(slog.NewJSONHandler(stderr, &slog.HandlerOptions{Level: level})), errors.Join(errs...)
}

// release is the tag of the image that this program was built for.
var release string

func version() string {
	if release != "" {
		return release
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// build tells this program from others of its version. A program that cannot
// read itself counts as the same.
func build() string {
	text, err := os.Open("/proc/self/exe")
	if err != nil {
		return version()
	}
	defer text.Close()
	h := sha256.New()
	if _, err := io.Copy(h, text); err != nil {
		return version()
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
