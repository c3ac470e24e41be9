// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"runtime/debug"
	"slices"
)

// The part of SPDX 2.3 that says which modules a program was built from.
type document struct {
	Version      string         `json:"spdxVersion"`
	License      string         `json:"dataLicense"`
	ID           string         `json:"SPDXID"`
	Name         string         `json:"name"`
	Namespace    string         `json:"documentNamespace"`
	Creation     creation       `json:"creationInfo"`
	Packages     []bundle       `json:"packages"`
	Relationship []relationship `json:"relationships"`
}

type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type bundle struct {
	ID       string     `json:"SPDXID"`
	Name     string     `json:"name"`
	Version  string     `json:"versionInfo"`
	Location string     `json:"downloadLocation"`
	Refs     []external `json:"externalRefs,omitempty"`
}

type external struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

// sbom lists the Go modules of all platforms' programs, as the programs say
// themselves. It has no date: equal source gives equal bytes.
func sbom(name, tag string, platforms []platform) ([]byte, error) {
	modules := map[string]debug.Module{}
	toolchain, sum := "", sha256.New()
	for _, p := range platforms {
		for _, f := range p.files {
			sum.Write(f.data)
			info, err := buildinfo.Read(bytes.NewReader(f.data))
			if err != nil {
				return nil, fmt.Errorf("read modules of %s for %s: %w", f.name, p.arch, err)
			}
			toolchain = info.GoVersion
			for _, m := range info.Deps {
				modules[m.Path] = *m
			}
		}
	}
	const self, root = "SPDXRef-DOCUMENT", "SPDXRef-image"
	doc := document{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: self, Name: name + "-" + tag,
		Namespace: "https://temper.dev/spdx/" + name + "-" + tag + "-" + hex.EncodeToString(sum.Sum(nil)),
		// SPDX wants a date; that of the build would change the bytes.
		Creation:     creation{Created: "1970-01-01T00:00:00Z", Creators: []string{"Tool: temper-image"}},
		Packages:     []bundle{{ID: root, Name: name, Version: tag, Location: "NOASSERTION"}},
		Relationship: []relationship{{self, "DESCRIBES", root}},
	}
	modules["stdlib"] = debug.Module{Path: "stdlib", Version: toolchain}
	for _, path := range slices.Sorted(maps.Keys(modules)) {
		b := moduleOf(modules[path])
		doc.Packages = append(doc.Packages, b)
		doc.Relationship = append(doc.Relationship, relationship{root, "CONTAINS", b.ID})
	}
	return json.MarshalIndent(doc, "", "  ")
}

var notInID = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

func moduleOf(m debug.Module) bundle {
	return bundle{
		ID:       "SPDXRef-go-" + notInID.ReplaceAllString(m.Path, "-"),
		Name:     m.Path,
		Version:  m.Version,
		Location: "NOASSERTION",
		Refs:     []external{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + m.Path + "@" + m.Version}},
	}
}
