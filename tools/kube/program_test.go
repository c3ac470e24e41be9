// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

func TestGoModOf(t *testing.T) {
	upstream := `{"Go": "1.26.0", "Replace": [
		{"Old": {"Path": "k8s.io/api"}, "New": {"Path": "./staging/src/k8s.io/api"}},
		{"Old": {"Path": "a.example/fork"}, "New": {"Path": "b.example/fork", "Version": "v1.0.0"}},
		{"Old": {"Path": "a.example/beside"}, "New": {"Path": "../beside"}}
	]}`
	got, err := goModOf(module{"k8s.io/kubernetes", "v1.36.3"}, []byte(upstream))
	if err != nil {
		t.Fatal(err)
	}
	want := `module programs

go 1.26.0

require k8s.io/kubernetes v1.36.3
replace k8s.io/api => k8s.io/api v0.36.3
replace a.example/fork => b.example/fork v1.0.0
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestLdflags(t *testing.T) {
	got := kubernetes.ldflags()
	for _, want := range []string{
		"-X k8s.io/component-base/version.gitVersion=" + kubernetes.version,
		"-X k8s.io/client-go/pkg/version.gitMajor=1 ",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
	if got := etcd.ldflags(); got != "-s -w" {
		t.Errorf("etcd: %q", got)
	}
}

func TestUnknownProgram(t *testing.T) {
	if _, err := run(t.Context(), []string{"kube-proxy"}); err == nil || !strings.Contains(err.Error(), "kubelet") {
		t.Errorf("got %v, want the known ones", err)
	}
}
