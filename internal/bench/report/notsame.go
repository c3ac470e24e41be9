// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/temper-sched/temper/internal/bench"
	"github.com/temper-sched/temper/internal/bench/ladder"
)

// mostTold is how many differences the text names: packages come in dozens.
const mostTold = 8

// notSame says in a sentence what else differs; "" where nothing does.
func (c Comparison) notSame() string {
	told := c.NotSame
	if len(told) == 0 {
		return ""
	}
	more := ""
	if left := len(told) - mostTold; left > 0 {
		told, more = told[:mostTold], fmt.Sprintf("; and %d more", left)
	}
	return "Not the same: " + strings.Join(told, "; ") + more + "."
}

// tellApart notes in what two ladders differ whose arms were compared.
func (c *Comparison) tellApart(a, b *ladder.Ladder, arms []string) {
	if len(arms) == 0 {
		return
	}
	var all []string
	for _, d := range bench.Differences(a.Machine, b.Machine) {
		all = append(all, wholeHash.ReplaceAllString(d, "$1"))
	}
	all = slices.Concat(
		all,
		commandLines("emulator", "emulator arguments", a, b, arms, options),
		commandLines("kernel", "kernel command line", a, b, arms, strings.Fields),
		scenarioFields(a.Scenario, b.Scenario),
	)
	for _, d := range all {
		if !slices.Contains(c.NotSame, d) { // each ladder of theirs finds the machine's
			c.NotSame = append(c.NotSame, d)
		}
	}
}

// wholeHash is a SHA-256: as much of it as facts show tells it from others.
var wholeHash = regexp.MustCompile(`\b([0-9a-f]{12})[0-9a-f]{52}\b`)

// commandLines compares a fact arm by arm, for arms have words of their own, and shows
// the parts that only one side has.
func commandLines(whose, fact string, a, b *ladder.Ladder, arms []string, parts func(string) []string) []string {
	type difference struct{ had, has string }
	var order []difference
	of := map[difference][]string{}
	for _, arm := range arms {
		was, is := parts(strings.Join(a.Facts[fact][arm], " ")), parts(strings.Join(b.Facts[fact][arm], " "))
		d := difference{strings.Join(without(was, is), " "), strings.Join(without(is, was), " ")}
		if d == (difference{}) {
			continue
		}
		if of[d] == nil {
			order = append(order, d)
		}
		of[d] = append(of[d], arm)
	}
	var out []string
	for _, d := range order {
		name := whose + "'s command line"
		if len(of[d]) < len(arms) {
			name += " of " + list(of[d])
		}
		out = append(out, fmt.Sprintf("%s had %q, has %q", name, d.had, d.has))
	}
	return out
}

// without is what all has and others have not, once each.
func without(all, others []string) []string {
	var out []string
	for _, s := range all {
		if !slices.Contains(others, s) && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// options are an emulator's arguments, each with its value. The seed and a port differ by
// design, and what is appended is the kernel's command line.
func options(arguments string) []string {
	var out []string
	for word := range strings.FieldsSeq(freePort.ReplaceAllString(arguments, "127.0.0.1")) {
		if len(out) == 0 || strings.HasPrefix(word, "-") {
			out = append(out, word)
		} else {
			out[len(out)-1] += " " + word
		}
	}
	return slices.DeleteFunc(out, func(s string) bool { return strings.HasPrefix(s, "-seed ") || strings.HasPrefix(s, "-append ") })
}

// freePort is one that the host had free.
var freePort = regexp.MustCompile(`\b127\.0\.0\.1:\d+\b`)

// scenarioFields compares what two scenarios of one name ask for, by the fields of their
// files. Points of other rates were left out already, and a title is no work.
func scenarioFields(a, b bench.Scenario) []string {
	var out []string
	tell := func(field, was, is string) {
		if was != is {
			out = append(out, fmt.Sprintf("%s's %s was %s, is %s", a.Name, field, was, is))
		}
	}
	tell("points", pointNames(a), pointNames(b))
	for _, p := range a.Points {
		for _, q := range b.Points {
			if p.Name == q.Name {
				tell("clients at "+p.Name, strconv.Itoa(p.Clients), strconv.Itoa(q.Clients))
			}
		}
	}
	for _, s := range []*bench.Scenario{&a, &b} {
		s.Title, s.MaxRate, s.Points, s.Arms, s.Seeds = "", 0, nil, nil, 0
	}
	eachField("", reflect.ValueOf(a), reflect.ValueOf(b), tell)
	return out
}

func pointNames(s bench.Scenario) string {
	var names []string
	for _, p := range s.Points {
		names = append(names, p.Name)
	}
	return list(names)
}

// eachField visits the fields of two values of one type.
func eachField(path string, a, b reflect.Value, visit func(field, a, b string)) {
	switch {
	case a.Kind() == reflect.Struct:
		for i := range a.NumField() {
			name := a.Type().Field(i).Tag.Get("yaml")
			if path != "" {
				name = path + "." + name
			}
			eachField(name, a.Field(i), b.Field(i), visit)
		}
	case a.Kind() == reflect.Pointer && !a.IsNil() && !b.IsNil():
		eachField(path, a.Elem(), b.Elem(), visit)
	case a.Kind() == reflect.Slice && a.Type().Elem().Kind() == reflect.Struct && a.Len() == b.Len():
		for i := range a.Len() {
			eachField(fmt.Sprintf("%s[%d]", path, i), a.Index(i), b.Index(i), visit)
		}
	default:
		visit(path, shown(a), shown(b))
	}
}

// shown is a field as text. Where only one side has what a pointer points to, that is all of it.
func shown(v reflect.Value) string {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return "none"
		}
		v = v.Elem()
	}
	return strings.TrimPrefix(fmt.Sprintf("%+v", v.Interface()), "map")
}
