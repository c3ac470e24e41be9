// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/temper-sched/temper/internal/bench/load"
	"github.com/temper-sched/temper/internal/bench/node"
)

// newNode is the half of the program that runs inside a guest. People have no
// use for it; each command reads one JSON document and writes others.
func newNode() *cobra.Command {
	cmd := &cobra.Command{Use: "node", Short: "The half that runs inside a guest", Hidden: true}
	cmd.AddCommand(
		&cobra.Command{Use: "run", Short: "Run a ladder on this node", Args: exactly(0), RunE: runNode},
		&cobra.Command{Use: "load", Short: "Drive a load from this process", Args: exactly(0), RunE: runLoad},
	)
	return cmd
}

func runNode(cmd *cobra.Command, _ []string) error {
	var spec node.Spec
	if err := json.NewDecoder(cmd.InOrStdin()).Decode(&spec); err != nil {
		return fmt.Errorf("read run: %w", err)
	}
	return node.Run(cmd.Context(), spec, cmd.OutOrStdout())
}

func runLoad(cmd *cobra.Command, _ []string) error {
	var spec load.Spec
	if err := json.NewDecoder(cmd.InOrStdin()).Decode(&spec); err != nil {
		return fmt.Errorf("read load: %w", err)
	}
	out := json.NewEncoder(cmd.OutOrStdout())
	result, err := load.Run(cmd.Context(), spec, func(s load.Started) error { return out.Encode(s) })
	if err != nil {
		return err
	}
	return out.Encode(result)
}
