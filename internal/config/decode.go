// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sort"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/temper-sched/temper/internal/policy"
	"github.com/temper-sched/temper/internal/tier"
	"github.com/temper-sched/temper/internal/topology"
)

// decoder walks the YAML nodes itself: decoding into structs stops at the
// first error of a kind and loses the line of everything that is checked later.
type decoder struct {
	file   string
	what   string // the file is: "plan", "configuration"
	empty  string // why an empty file is refused; "" if it is not
	plan   policy.Plan
	places []place // of each group in plan
	errs   []*Error
}

func (d *decoder) decode(data []byte) {
	root := d.document(data)
	if root == nil || !d.noReferences(root) {
		return
	}
	if root.Kind != yaml.MappingNode {
		d.add(root.Line, "a plan is a mapping with the fields lend, cpuMax and groups, not %s", describe(root))
		return
	}
	groups := false
	word := func(field string, parse func(string) error) func(*yaml.Node) {
		return func(value *yaml.Node) {
			if text, ok := d.text(value, field); ok {
				if err := parse(text); err != nil {
					d.add(value.Line, "%s", err)
				}
			}
		}
	}
	d.fields(root, "plan", map[string]func(*yaml.Node){
		"lend":   word("lend", func(text string) (err error) { d.plan.Lend, err = policy.ParseLend(text); return err }),
		"cpuMax": word("cpuMax", func(text string) (err error) { d.plan.CPUMax, err = policy.ParseCPUMax(text); return err }),
		"groups": func(value *yaml.Node) {
			groups = true
			d.groups(value)
		},
	})
	if !groups {
		d.add(root.Line, "groups is missing: name at least one cgroup")
	}
}

// document returns the root of the only document in data, nil if there is none.
func (d *decoder) document(data []byte) *yaml.Node {
	if len(data) > MaxSize {
		d.add(0, "%d bytes: a %s file has at most %d", len(data), d.what, MaxSize)
		return nil
	}
	if before, _, found := bytes.Cut(data, []byte{0}); found {
		d.add(1+bytes.Count(before, []byte("\n")), "NUL byte: this is not a text file")
		return nil
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	err := dec.Decode(&doc)
	if errors.Is(err, io.EOF) || err == nil && isEmpty(&doc) {
		if d.empty != "" {
			d.add(0, "the file is empty: %s", d.empty)
		}
		return nil
	}
	if err != nil {
		d.syntax(data, err)
		return nil
	}
	switch err := dec.Decode(&second); {
	case errors.Is(err, io.EOF):
		return doc.Content[0]
	case err != nil:
		d.syntax(data, err)
	default:
		d.add(second.Line, "a second document: a %s file is one", d.what)
	}
	return nil
}

func isEmpty(doc *yaml.Node) bool {
	return len(doc.Content) == 0 || doc.Content[0].Tag == "!!null"
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// syntax reports a parser's error on the line where data stops being YAML. The
// parser names the line on which the broken collection began, or none.
func (d *decoder) syntax(data []byte, err error) {
	reason := err.Error()
	began := 0
	if m := yamlLine.FindStringSubmatch(reason); m != nil {
		began, _ = strconv.Atoi(m[1]) // digits, or empty for "no line": 0
		reason = reason[len(m[0]):]
	}
	lines := bytes.SplitAfter(data, []byte("\n"))
	began = min(began, len(lines))
	intact := sort.Search(len(lines)-began, func(n int) bool {
		return !isYAML(bytes.Join(lines[:began+n], nil))
	})
	d.add(max(began+intact, 1), "not YAML: %s", reason)
}

func isYAML(data []byte) bool {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for {
		if err := dec.Decode(new(yaml.Node)); err != nil {
			return errors.Is(err, io.EOF)
		}
	}
}

// noReferences refuses anchors, aliases and tags: our files have no use for
// them, and reviewers should see what they apply.
func (d *decoder) noReferences(n *yaml.Node) bool {
	switch {
	case n.Kind == yaml.AliasNode:
		d.add(n.Line, "alias %q: %ss are written out", n.Value, d.what)
		return false
	case n.Anchor != "":
		d.add(n.Line, "anchor %q: %ss are written out", n.Anchor, d.what)
		return false
	case n.Style&yaml.TaggedStyle != 0:
		d.add(n.Line, "tag %q: %ss are plain YAML", n.Tag, d.what)
		return false
	}
	for _, child := range n.Content {
		if !d.noReferences(child) {
			return false
		}
	}
	return true
}

// fields calls the handler of each field of a mapping, once.
func (d *decoder) fields(mapping *yaml.Node, what string, handlers map[string]func(*yaml.Node)) {
	seen := map[string]int{}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		handle, known := handlers[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode || !known:
			d.add(key.Line, "unknown field %s in a %s: one of %s", quote(key), what, fieldNames(what))
		case seen[key.Value] != 0:
			d.add(key.Line, "%s is given twice, first on line %d", key.Value, seen[key.Value])
		default:
			seen[key.Value] = key.Line
			handle(value)
		}
	}
}

// fieldNames lists the fields in the order of the documentation.
func fieldNames(what string) string {
	switch what {
	case "plan":
		return "lend, cpuMax, groups"
	case "configuration":
		return strings.Join(agentFields, ", ")
	}
	return "cgroup, tier, fence"
}

func (d *decoder) groups(list *yaml.Node) {
	if list.Kind != yaml.SequenceNode {
		d.add(list.Line, "groups is a list, not %s", describe(list))
		return
	}
	if len(list.Content) == 0 {
		d.add(list.Line, "groups is empty: name at least one cgroup")
	}
	for _, item := range list.Content {
		d.group(item)
	}
}

func (d *decoder) group(item *yaml.Node) {
	if item.Kind != yaml.MappingNode {
		d.add(item.Line, "a group is a mapping with the fields cgroup, tier and fence, not %s", describe(item))
		return
	}
	at := place{group: item.Line, lines: map[policy.Field]int{}, bad: map[policy.Field]bool{}}
	var g policy.Group
	field := func(f policy.Field, parse func(string) error) func(*yaml.Node) {
		return func(value *yaml.Node) {
			at.lines[f] = value.Line
			text, ok := d.text(value, string(f))
			if !ok {
				at.bad[f] = true
				return
			}
			if err := parse(text); err != nil {
				d.add(value.Line, "%s", err)
				at.bad[f] = true
			}
		}
	}
	d.fields(item, "group", map[string]func(*yaml.Node){
		"cgroup": field(policy.FieldCgroup, func(text string) error {
			g.Cgroup, g.EachChild = strings.CutSuffix(text, "/*")
			if g.EachChild && g.Cgroup == "" {
				g.Cgroup = "/"
			}
			return nil
		}),
		"tier":  field(policy.FieldTier, func(text string) (err error) { g.Tier, err = tier.Parse(text); return err }),
		"fence": field(policy.FieldFence, func(text string) (err error) { g.Fence, err = parseFence(text); return err }),
	})
	for _, f := range []policy.Field{policy.FieldCgroup, policy.FieldTier} {
		if at.lines[f] == 0 {
			d.add(item.Line, "the group has no %s", f)
			at.bad[f] = true
		}
	}
	if at.bad[policy.FieldTier] {
		at.bad[policy.FieldFence] = true // whether it may have one is not known
	}
	d.plan.Groups = append(d.plan.Groups, g)
	d.places = append(d.places, at)
}

func parseFence(text string) ([]int, error) {
	cpus, err := topology.ParseList(text)
	if err == nil && len(cpus) == 0 {
		err = errors.New(`the fence is empty: leave the field out, or list CPUs as in "0-3,8"`)
	}
	return cpus, err
}

var examples = map[string]string{
	"lend":   "per-core",
	"cpuMax": "enforce",
	"cgroup": "/system.slice/memcached.service",
	"tier":   "critical",
	"fence":  `"0-3,8"`,

	"mode":         "observe",
	"critical":     "1000000",
	"background":   "0",
	"reservedCPUs": `"0-1"`,
	"deadMan":      "30s",
	"settle":       "30s",
}

// text returns a scalar's text. Numbers count: YAML reads fence: 2 as one.
func (d *decoder) text(value *yaml.Node, field string) (string, bool) {
	if value.Kind != yaml.ScalarNode || value.Tag == "!!null" {
		d.add(value.Line, "%s is one value, as in %s, not %s", field, examples[field], describe(value))
		return "", false
	}
	return value.Value, true
}

func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Tag == "!!null":
		return "nothing"
	}
	return quote(n)
}

// quote shows a scalar, shortened: a file that is no plan at all may be one
// scalar of a megabyte.
func quote(n *yaml.Node) string {
	if n.Kind != yaml.ScalarNode {
		return describe(n)
	}
	if text := []rune(n.Value); len(text) > 40 {
		return fmt.Sprintf("%q…", string(text[:40]))
	}
	return fmt.Sprintf("%q", n.Value)
}
