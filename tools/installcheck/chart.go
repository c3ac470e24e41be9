// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/temper-sched/temper/internal/config"
)

// variants are the settings whose objects are checked, beside the defaults.
var variants = []string{
	"",
	"mode=enforce,lend=landing,cpuMax=refuse,critical=5000,background=-5,reservedCPUs=0-1\\,8,minReadySeconds=0,logLevel=debug",
	"canary.enabled=true,canary.nodeSelector.zone=a,image.pullSecrets[0].name=s,networkPolicy.enabled=false",
	"networkPolicy.from[0].namespaceSelector.matchLabels.team=monitoring,networkPolicy.from[1].ipBlock.cidr=10.0.0.1/32",
	"priorityClasses.create=true,podMonitor.enabled=true,prometheusRule.enabled=true,dashboard.enabled=true",
	"deadMan=2s,settle=0s,critical=7,background=7,reservedCPUs=08-8\\,0-8191",
	"deadMan=9m59.5s500ms,settle=10m,critical=1999999999,background=-2147483648",
}

// refused are settings with a fault each, and the word by which the schema, or a
// template where that is not enough, complains of it.
var refused = map[string]string{
	"mode=on":                      "mode",
	"lend=always":                  "lend",
	"cpuMax=ignore":                "cpuMax",
	"critical=0":                   "critical",
	"critical=2000000000":          "critical",
	"background=5,critical=4":      "background",
	"reservedCPUs=0-":              "reservedCPUs",
	"reservedCPUs=5-2":             "reservedCPUs",
	"reservedCPUs=0-9000":          "reservedCPUs",
	"reservedCPUs=1\\,8192-8193":   "reservedCPUs",
	"deadMan=30":                   "deadMan",
	"deadMan=1h":                   "deadMan",
	"deadMan=1s":                   "deadMan",
	"deadMan=10m1ms":               "deadMan",
	"settle=soon":                  "settle",
	"settle=1h":                    "settle",
	"logLevel=trace":               "logLevel",
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
	"networkPolicy.from=all":       "from",
	"minReadySeconds=soon":         "minReadySeconds",
	"minReadySeconds=-1":           "minReadySeconds",
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

// enforces holds the overlay against its base: the agents get a configuration
// that enforces, and new pods with it.
func enforces(ctx context.Context, _ tool) error {
	kustomize, err := find(ctx, "kustomize")
	if err != nil {
		return err
	}
	built, err := kustomize.run(ctx, nil, "build", overlay)
	if err != nil {
		return err
	}
	base, err := os.ReadFile(manifests)
	if err != nil {
		return err
	}
	was, err := rolledBy(base)
	if err != nil {
		return err
	}
	is, err := rolledBy(built)
	if err != nil {
		return err
	}
	configs, err := configurations(built)
	if err != nil {
		return err
	}
	a, err := config.ParseAgent("agent.yaml", []byte(configs[0]))
	switch {
	case err != nil:
		return err
	case a.Mode != config.Enforce:
		return fmt.Errorf("the mode is %s", a.Mode)
	case is == was || is != configs[0]:
		return fmt.Errorf("the pods' annotation is %q, the configuration %q", is, configs[0])
	}
	return nil
}

// rolledBy returns the annotation by which a configuration makes new pods.
func rolledBy(objects []byte) (string, error) {
	for d := yaml.NewDecoder(bytes.NewReader(objects)); ; {
		var o struct {
			Kind string
			Spec struct {
				Template struct {
					Metadata struct{ Annotations map[string]string }
				}
			}
		}
		if err := d.Decode(&o); err != nil {
			return "", fmt.Errorf("find DaemonSet: %w", err)
		}
		if o.Kind == "DaemonSet" {
			return o.Spec.Template.Metadata.Annotations["temper.dev/config"], nil
		}
	}
}

func refuse(ctx context.Context, helm tool) error {
	var errs []error
	for set, word := range refused {
		_, err := render(ctx, helm, set)
		if err == nil {
			errs = append(errs, fmt.Errorf("%s is taken", set))
			continue
		}
		_, said, _ := strings.Cut(err.Error(), set) // after the command line
		if !isRefusal(said) || !strings.Contains(said, word) {
			errs = append(errs, fmt.Errorf("%s is refused for another reason: %w", set, err))
		}
	}
	return errors.Join(errs...)
}

// isRefusal tells whether the schema, or a fail in a template, is why helm ended.
func isRefusal(said string) bool {
	return strings.Contains(said, "specifications of the schema") || strings.Contains(said, "execution error at (temper/templates/")
}

// agree holds every configuration that the chart makes against the agent, which
// exits on one that it refuses.
func agree(ctx context.Context, helm tool) error {
	for _, set := range variants {
		objects, err := render(ctx, helm, set)
		if err != nil {
			return err
		}
		configs, err := configurations(objects)
		if err != nil {
			return fmt.Errorf("with %q: %w", set, err)
		}
		for _, text := range configs {
			if _, err := config.ParseAgent("agent.yaml", []byte(text)); err != nil {
				return fmt.Errorf("with %q: %w", set, err)
			}
		}
	}
	return nil
}

// configurations returns those of the agents in what the chart renders.
func configurations(objects []byte) ([]string, error) {
	var out []string
	for d := yaml.NewDecoder(bytes.NewReader(objects)); ; {
		var o struct{ Data map[string]string }
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read objects: %w", err)
		}
		if text, ok := o.Data["agent.yaml"]; ok {
			out = append(out, text)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("no configuration of an agent")
	}
	return out, nil
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
