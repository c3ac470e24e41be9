// SPDX-License-Identifier: Apache-2.0

package run

import (
	"debug/elf"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// libraries returns the loader of the program at path and the shared libraries
// that it would have here; both are empty for a static program.
func libraries(path string) (loader string, libs []string, err error) {
	f, err := elf.Open(path)
	if err != nil {
		return "", nil, fmt.Errorf("open scheduler %s: %w", path, err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		text, err := io.ReadAll(p.Open())
		if err != nil {
			return "", nil, fmt.Errorf("read loader of %s: %w", path, err)
		}
		loader = strings.TrimRight(string(text), "\x00")
	}
	if loader == "" {
		return "", nil, nil
	}
	out, err := exec.Command(loader, "--list", path).Output()
	if err != nil {
		return "", nil, fmt.Errorf("list libraries of %s: %w", path, err)
	}
	if strings.Contains(string(out), "not found") {
		return "", nil, fmt.Errorf("list libraries of %s: some are not on this machine:\n%s", path, out)
	}
	return loader, parseLibraries(string(out)), nil
}

// parseLibraries reads "name => path (address)" lines.
func parseLibraries(text string) []string {
	var libs []string
	for line := range strings.Lines(text) {
		_, rest, ok := strings.Cut(line, "=> ")
		if path, _, _ := strings.Cut(rest, " ("); ok && strings.HasPrefix(path, "/") {
			libs = append(libs, path)
		}
	}
	return libs
}
