// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"regexp"
	"testing"
)

const quickstartDoc = "../../docs/quickstart.md"

// block is a script of the document that has a name.
var block = regexp.MustCompile("(?ms)^<!-- e2e: ([a-z-]+) -->\n```sh\n(.*?)^```$")

// quickstart returns the document's scripts by name, so that what it tells
// people to do is what is tested.
func quickstart(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(quickstartDoc)
	if err != nil {
		t.Fatal(err)
	}
	scripts := map[string]string{}
	for _, m := range block.FindAllStringSubmatch(string(text), -1) {
		scripts[m[1]] = m[2]
	}
	return scripts
}

// follow runs a script of the document.
func (c *cluster) follow(t *testing.T, name string) {
	t.Helper()
	script, ok := quickstart(t)[name]
	if !ok {
		t.Fatalf("%s has no script %s", quickstartDoc, name)
	}
	c.host(t, script)
}

// install brings the agent to where it schedules the node.
func (c *cluster) install(t *testing.T) {
	t.Helper()
	c.follow(t, "install")
	c.enforce(t)
	c.want(t, "attached", "Attached")
}

// enforce gives the installed agents the other mode.
func (c *cluster) enforce(t *testing.T) {
	t.Helper()
	c.follow(t, "enforce")
	c.rolledOut(t)
}

// TestQuickstart checks that what the tests follow is in the document, on a
// machine that cannot run them.
func TestQuickstart(t *testing.T) {
	scripts := quickstart(t)
	for _, name := range []string{"install", "enforce", "attached", "critical", "safe-mode-on", "safe-mode-off", "uninstall"} {
		if scripts[name] == "" {
			t.Errorf("%s has no script %s", quickstartDoc, name)
		}
	}
}
