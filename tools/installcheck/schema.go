// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Where the schemas come from: the releases' own source.
const (
	kubernetes = "k8s.io/kubernetes@v1.36.3"
	operator   = "github.com/prometheus-operator/prometheus-operator@v0.94.1"
)

// kinds are Kubernetes' own that the chart renders, by their definition.
var kinds = map[string]string{
	"configmap":                        "io.k8s.api.core.v1.ConfigMap",
	"serviceaccount":                   "io.k8s.api.core.v1.ServiceAccount",
	"daemonset":                        "io.k8s.api.apps.v1.DaemonSet",
	"clusterrole":                      "io.k8s.api.rbac.v1.ClusterRole",
	"clusterrolebinding":               "io.k8s.api.rbac.v1.ClusterRoleBinding",
	"networkpolicy":                    "io.k8s.api.networking.v1.NetworkPolicy",
	"priorityclass":                    "io.k8s.api.scheduling.v1.PriorityClass",
	"validatingadmissionpolicy":        "io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicy",
	"validatingadmissionpolicybinding": "io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicyBinding",
}

// resources are the operator's, by their file; all have the version v1.
var resources = map[string]string{
	"podmonitor":     "monitoring.coreos.com_podmonitors.yaml",
	"prometheusrule": "monitoring.coreos.com_prometheusrules.yaml",
}

// schemas writes a JSON schema for each kind to dir, by the names that
// kubeconform asks for: kind-group-version, the group's first word only.
func schemas(ctx context.Context, dir string) error {
	root, err := source(ctx, kubernetes)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(root, "api/openapi-spec/swagger.json"))
	if err != nil {
		return err
	}
	var swagger struct {
		Definitions map[string]any `json:"definitions"`
	}
	if err := json.Unmarshal(text, &swagger); err != nil {
		return fmt.Errorf("read schemas of %s: %w", kubernetes, err)
	}
	definitions := closed(swagger.Definitions)
	for kind, name := range kinds {
		part := strings.Split(name, ".")
		group := part[len(part)-3] + "-v1"
		if group == "core-v1" {
			group = "v1"
		}
		schema := map[string]any{"$ref": "#/definitions/" + name, "definitions": definitions}
		if err := writeSchema(dir, kind+"-"+group, schema); err != nil {
			return err
		}
	}
	return customSchemas(ctx, dir)
}

func customSchemas(ctx context.Context, dir string) error {
	root, err := source(ctx, operator)
	if err != nil {
		return err
	}
	for kind, file := range resources {
		text, err := os.ReadFile(filepath.Join(root, "example/prometheus-operator-crd", file))
		if err != nil {
			return err
		}
		var crd struct {
			Spec struct {
				Versions []struct {
					Schema struct {
						Root map[string]any `yaml:"openAPIV3Schema"`
					}
				}
			}
		}
		if err := yaml.Unmarshal(text, &crd); err != nil || len(crd.Spec.Versions) == 0 {
			return fmt.Errorf("read schema %s of %s: %w", file, operator, err)
		}
		schema := closed(crd.Spec.Versions[0].Schema.Root)
		schema["properties"].(map[string]any)["metadata"] = map[string]any{"type": "object"}
		if err := writeSchema(dir, kind+"-monitoring-v1", schema); err != nil {
			return err
		}
	}
	return nil
}

func writeSchema(dir, name string, schema map[string]any) error {
	text, err := json.Marshal(schema)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+".json"), text, 0o644)
}

// closed makes of an OpenAPI schema a JSON schema that knows no other fields
// than it names. Where OpenAPI says with a format that a number is fine, too,
// it becomes a choice.
func closed(schema map[string]any) map[string]any {
	out := map[string]any{}
	for key, value := range schema {
		switch v := value.(type) {
		case map[string]any:
			out[key] = closed(v)
		case []any:
			list := make([]any, len(v))
			for i, item := range v {
				list[i] = item
				if m, ok := item.(map[string]any); ok {
					list[i] = closed(m)
				}
			}
			out[key] = list
		default:
			out[key] = value
		}
	}
	_, fields := out["properties"].(map[string]any)
	if _, said := out["additionalProperties"]; fields && !said && out["type"] == "object" {
		out["additionalProperties"] = false
	}
	if out["format"] == "int-or-string" || out["x-kubernetes-int-or-string"] == true {
		return map[string]any{"type": []any{"string", "integer"}}
	}
	return out
}

// source downloads a module's source, once, and returns where it lies.
func source(ctx context.Context, module string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	cmd.Dir = os.TempDir() // not in our module, whose requirements do not matter here
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("download %s: %w\n%s", module, err, bytes.TrimSpace(out))
	}
	var downloaded struct{ Dir string }
	if err := json.Unmarshal(out, &downloaded); err != nil {
		return "", fmt.Errorf("download %s: %w", module, err)
	}
	return downloaded.Dir, nil
}
