// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersion(n node) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: action(func(*cobra.Command) error {
			info, _ := debug.ReadBuildInfo()
			fmt.Fprintf(n.stdout, "temper %s %s %s/%s\n", version(info), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return nil
		}),
	}
}

// version is the module's, which Go takes from the tag or commit it was built
// from; info is nil in a binary built without modules.
func version(info *debug.BuildInfo) string {
	if info == nil || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
