// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/temper-sched/temper/internal/kube"
	"github.com/temper-sched/temper/internal/kube/kubetest"
)

// newAPI is an API server for the length of the test.
func newAPI(t *testing.T) *kubetest.Server {
	t.Helper()
	a := kubetest.New()
	startAPI(t, a)
	t.Cleanup(a.Stop)
	return a
}

func startAPI(t *testing.T, a *kubetest.Server) {
	t.Helper()
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
}

func engineLabel(a *kubetest.Server) string {
	label, _ := kubetest.Inner(a.Get(kubetest.NodePath), "metadata", "labels")[kube.EngineLabel].(string)
	return label
}
