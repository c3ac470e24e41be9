// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
)

// variants are the settings whose objects are checked, beside the defaults.
var variants = []string{
	"",
	"mode=enforce,lend=landing,cpuMax=refuse,critical=5000,background=-5,reservedCPUs=0-1\\,8",
	"canary.enabled=true,canary.nodeSelector.zone=a,image.pullSecrets[0].name=s,networkPolicy.enabled=false",
	"priorityClasses.create=true,podMonitor.enabled=true,prometheusRule.enabled=true,dashboard.enabled=true",
}

// refused are settings with a fault each, and the word by which the schema
// complains of it.
var refused = map[string]string{
	"mode=on":                      "mode",
	"lend=always":                  "lend",
	"cpuMax=ignore":                "cpuMax",
	"critical=0":                   "critical",
	"critical=2000000000":          "critical",
	"reservedCPUs=0-":              "reservedCPUs",
	"deadMan=30":                   "deadMan",
	"settle=soon":                  "settle",
	"image.tag=a:b":                "tag",
	"image.digest=x":               "digest",
	"image.pullPolicy=Sometimes":   "pullPolicy",
	"canary.mode=off":              "mode",
	"canary.nodeSelector=null":     "nodeSelector",
	"tolerations=all":              "tolerations",
	"podMonitor.enabled=yes":       "enabled",
	"priorityClasses.critical=1":   "critical",
	"dashboards.enabled=true":      "dashboards",
	"networkPolicy.egress=nothing": "egress",
}

func lint(ctx context.Context, helm tool) error {
	_, err := helm.run(ctx, nil, "lint", "--strict", chart)
	return err
}

func render(ctx context.Context, helm tool, set string) ([]byte, error) {
	return helm.run(ctx, nil, "template", "temper", chart, "--namespace", "temper-system", "--set", set)
}

// base is deploy/manifests: the chart with its defaults.
func base(ctx context.Context, helm tool) ([]byte, error) {
	text, err := render(ctx, helm, "")
	return append([]byte(header), text...), err
}

func current(ctx context.Context, helm tool) error {
	want, err := base(ctx, helm)
	if err != nil {
		return err
	}
	got, err := os.ReadFile(manifests)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%s is not what the chart renders: make manifests", manifests)
	}
	return nil
}

func refuse(ctx context.Context, helm tool) error {
	var errs []error
	for set, word := range refused {
		switch _, err := render(ctx, helm, set); {
		case err == nil:
			errs = append(errs, fmt.Errorf("%s is taken", set))
		case !strings.Contains(err.Error(), "specifications of the schema") || !strings.Contains(err.Error(), word):
			errs = append(errs, fmt.Errorf("%s is refused for another reason: %w", set, err))
		}
	}
	return errors.Join(errs...)
}

func conform(ctx context.Context, helm tool) error {
	kubeconform, err := find(ctx, "kubeconform")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "temper-schemas-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := schemas(ctx, dir); err != nil {
		return err
	}
	check := func(objects []byte) error {
		_, err := kubeconform.run(ctx, objects, "-strict", "-schema-location", dir+"/{{.ResourceKind}}{{.KindSuffix}}.json")
		return err
	}
	for _, set := range variants {
		objects, err := render(ctx, helm, set)
		if err != nil {
			return err
		}
		if err := check(objects); err != nil {
			return fmt.Errorf("with %q: %w", set, err)
		}
	}
	// The schemas must refuse something, too.
	objects, err := render(ctx, helm, "")
	if err != nil {
		return err
	}
	if check(bytes.Replace(objects, []byte("readOnly:"), []byte("readonly:"), 1)) == nil {
		return errors.New("a misspelt field is taken")
	}
	return nil
}
