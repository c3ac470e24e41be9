// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"fmt"
	"slices"
	"testing"
)

// kernelIndex has one large package for each name, and an empty one beside it.
func kernelIndex(suite, version string, names ...string) index {
	x := index{}
	for _, n := range names {
		x[n] = versions{{name: n, version: version, suite: suite, size: 13 << 20}}
	}
	x["linux-image-7.2.99-cloud-amd64"] = versions{{name: "linux-image-7.2.99-cloud-amd64", version: "7.2.99-1", size: 1900}}
	return x
}

func TestKernelCandidates(t *testing.T) {
	a := &archive{idx: map[string]index{
		"sid": kernelIndex("sid", "7.4.1-1", "linux-binary-7.4.1+deb14-cloud-amd64", "linux-binary-7.4.1+deb14-amd64"),
		"forky": kernelIndex("forky", "7.2.13-1", "linux-binary-7.2.13+deb14-cloud-amd64",
			"linux-binary-unsigned-7.2.13+deb14-cloud-amd64", "linux-modules-7.2.13+deb14-cloud-amd64"),
		"experimental": kernelIndex("experimental", "7.20~rc1-1", "linux-binary-7.20-cloud-amd64"),
	}}
	suites := []string{"sid", "forky", "experimental"}
	for name, tc := range map[string]struct {
		spec kernelSpec
		want []string
	}{
		"signed before unsigned": {
			kernelSpec{version: "7.2", suites: suites},
			[]string{"linux-binary-7.2.13+deb14-cloud-amd64", "linux-binary-unsigned-7.2.13+deb14-cloud-amd64"},
		},
		"then newer ones": {
			kernelSpec{version: "7.2", suites: suites, orNewer: true},
			[]string{
				"linux-binary-7.2.13+deb14-cloud-amd64", "linux-binary-unsigned-7.2.13+deb14-cloud-amd64",
				"linux-binary-7.4.1+deb14-cloud-amd64", "linux-binary-7.20-cloud-amd64",
			},
		},
		"gone and replaced": {
			kernelSpec{version: "7.3", suites: suites, orNewer: true},
			[]string{"linux-binary-7.4.1+deb14-cloud-amd64", "linux-binary-7.20-cloud-amd64"},
		},
		"gone": {kernelSpec{version: "6.18", suites: suites}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.spec.candidates(a)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, p := range got {
				names = append(names, p.name)
			}
			if !slices.Equal(names, tc.want) {
				t.Errorf("got %q, want %q", names, tc.want)
			}
		})
	}
}

func TestSplitVersion(t *testing.T) {
	for in, want := range map[string]string{"7.2": "7 2", "7.2.13+deb14-cloud-amd64": "7 2", "7.3-cloud-amd64": "7 3", "6.18.15": "6 18", "x": "0 0"} {
		major, minor := splitVersion(in)
		if got := fmt.Sprint(major, minor); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}

func TestKernelNamesAreUnique(t *testing.T) {
	names := Kernels()
	slices.Sort(names)
	if len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("a name twice in %q", names)
	}
	if !slices.Contains(names, DefaultKernel) {
		t.Errorf("the default %s is not in %q", DefaultKernel, names)
	}
}
