// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/temper-sched/temper/internal/topology"
)

// Scenario is what the node has to do: a critical pod with its work, a ladder
// of background pods beside it, and who drives and who measures.
type Scenario struct {
	Name  string `json:"name" yaml:"name"`
	Title string `json:"title" yaml:"title"`
	// Measures says what the latency histogram holds, for tables and axes:
	// "request latency", "wakeup delay".
	Measures string `json:"measures" yaml:"measures"`
	// Topology is the node's sockets, cores and threads, "1s4c1t".
	Topology string `json:"topology" yaml:"topology"`
	// Instrument says that the last CPU is the client's alone. Without, pods
	// may use all CPUs and the primary measures itself.
	Instrument bool    `json:"instrument" yaml:"instrument"`
	Primary    Primary `json:"primary" yaml:"primary"`
	Load       Load    `json:"load" yaml:"load"`
	// MaxRate is the most that the primary achieves alone, as a capacity
	// scenario measured it; Points may be shares of it.
	MaxRate float64 `json:"max_rate_rps,omitempty" yaml:"max_rate"`
	// Points are the operating points; each has a whole ladder.
	Points []Point `json:"points,omitempty" yaml:"points"`
	// Densities is the ladder: background pods at each step, in order. Up and
	// down again, a density comes twice; its two steps are different ones.
	Densities Densities `json:"densities" yaml:"densities"`
	// Background are the kinds of work, of Batches, that the background pods do:
	// the n-th pod that of the n-th kind, and round again. Without, each has a spinner.
	Background []string `json:"background,omitempty" yaml:"background"`
	// Peers, if given, makes the spinners' pods the primary's equals: all are of
	// the tier standard, as pods without a PriorityClass, and nobody has a fence.
	Peers *Peers `json:"peers,omitempty" yaml:"peers"`
	// Arms and Seeds are what a run has unless told otherwise. They are no part
	// of what a window is.
	Arms  []string `json:"-" yaml:"arms"`
	Seeds int      `json:"-" yaml:"seeds"`
}

// Primary is the critical pod and what runs in it.
type Primary struct {
	Kind            string `json:"kind" yaml:"kind"` // one of Kinds
	Threads         int    `json:"threads" yaml:"threads"`
	RequestMilliCPU int    `json:"request_millicpu" yaml:"request_millicpu"` // gives cpu.weight and the fence
	// LimitMilliCPU is the pod's CPU limit, and its container's; 0 for none.
	LimitMilliCPU int `json:"limit_millicpu,omitempty" yaml:"limit_millicpu"`
	// Containers are the pod's, where it has more than one.
	Containers []Container `json:"containers,omitempty" yaml:"containers"`
	// LimitSteps change the limit within the window.
	LimitSteps []LimitStep `json:"limit_steps,omitempty" yaml:"limit_steps"`
	// Params are the kind's own figures, by names that say their units.
	Params map[string]float64 `json:"params,omitempty" yaml:"params"`
	// Pods are the pods of a kind that compares pods, instead of the one.
	Pods []PodSpec `json:"pods,omitempty" yaml:"pods"`
}

// Peers says what the pods are that the primary has for equals.
type Peers struct {
	// RequestMilliCPU is the request of each spinner's pod; 0 for BestEffort.
	RequestMilliCPU int `json:"request_millicpu,omitempty" yaml:"request_millicpu"`
}

// PodSpec is one of several pods in a primary.
type PodSpec struct {
	Name    string `json:"name" yaml:"name"`
	Tier    string `json:"tier" yaml:"tier"`
	Weight  int    `json:"weight" yaml:"weight"` // cpu.weight
	Threads int    `json:"threads" yaml:"threads"`
	// Point is the operating point at which the pod is there; empty for all.
	Point string `json:"point,omitempty" yaml:"point"`
	// CPUs is where its threads are bound; empty for anywhere.
	CPUs string `json:"cpus,omitempty" yaml:"cpus"`
}

// Kind says what a primary needs.
type Kind struct {
	Name string
	// Server means that the load generator drives it and measures.
	Server bool
	// Tool means that the server's own client program does so instead, and that
	// a point without a rate is a closed loop.
	Tool bool
	// Stores means that its requests have values, of a length that the load says.
	Stores bool
	// Agent means that it is the node agent, which attaches and measures by
	// itself, and that the node's program is its API server and its kubelet.
	Agent bool
	// Saturates means that its pods want more CPUs than there are.
	Saturates bool
	// Packages are the Debian packages of its programs.
	Packages []string
	// Params are the names that Primary.Params must have, all of them.
	Params []string
}

// Kinds lists the primaries.
func Kinds() []Kind {
	return []Kind{
		{Name: "memcached", Server: true, Stores: true, Packages: []string{"memcached"}},
		{Name: "redis", Server: true, Stores: true, Packages: []string{"redis-server"}},
		{Name: "chain", Server: true},
		{Name: "postgresql", Server: true, Tool: true, Packages: []string{"postgresql-17"}, Params: []string{"branches", "accounts"}},
		{Name: "mariadb", Server: true, Tool: true, Packages: []string{"mariadb-server-core", "sysbench"}, Params: []string{"tables", "rows"}},
		{Name: "agent", Agent: true, Params: []string{"pods"}},
		{Name: "requests", Params: []string{"request_us", "unit_us"}},
		{Name: "wakeup"},
		{Name: "burst", Params: []string{"burst_us"}},
		{Name: "bursty", Params: []string{"busy_us", "idle_us", "unit_us"}},
		{Name: "pipe"},
		{Name: "hackbench", Packages: []string{"rt-tests"}, Params: []string{"groups", "loops"}},
		{Name: "weights", Saturates: true, Params: []string{"burst_us"}},
		{Name: "starvation", Saturates: true, Params: []string{"unit_us"}},
	}
}

// KindOf returns the scenario's kind of primary; the zero Kind if there is none.
func (s Scenario) KindOf() Kind {
	for _, k := range Kinds() {
		if k.Name == s.Primary.Kind {
			return k
		}
	}
	return Kind{}
}

// Load is how the primary is driven, and how long each step is.
type Load struct {
	Arrivals   string `json:"arrivals,omitempty" yaml:"arrivals"` // ArrivalsPoisson or ArrivalsConstant
	Conns      int    `json:"conns,omitempty" yaml:"conns"`
	Keys       int    `json:"keys,omitempty" yaml:"keys"`
	ValueBytes int    `json:"value_bytes,omitempty" yaml:"value_bytes"`
	SetEvery   int    `json:"set_every,omitempty" yaml:"set_every"` // one request in so many is a set
	// Warmup is driven but not measured. So are a pad before the window, in
	// which the node's counters are read, and two after it: the window's last
	// answers come in the first, the counters are read in the second.
	Warmup time.Duration `json:"warmup_ns" yaml:"warmup"`
	Window time.Duration `json:"window_ns" yaml:"window"`
	Pad    time.Duration `json:"pad_ns" yaml:"pad"`
}

// The arrival processes of an open loop.
const (
	ArrivalsPoisson  = "poisson"
	ArrivalsConstant = "constant"
)

// Total is how long the client sends.
func (l Load) Total() time.Duration { return l.Warmup + l.Window + 3*l.Pad }

// Counted is the span between the two readings of the node's counters.
func (l Load) Counted() time.Duration { return l.Window + 2*l.Pad }

// Point is an operating point: a rate, or a share of the primary's maximum.
type Point struct {
	Name  string  `json:"name" yaml:"name"`
	Rate  float64 `json:"rate_rps,omitempty" yaml:"rate"`
	Share float64 `json:"share,omitempty" yaml:"share"`
	// Clients is the number of connections here; 0 for the load's.
	Clients int `json:"clients,omitempty" yaml:"clients"`
}

// Densities are background pods at each step of a ladder.
type Densities []int

// UnmarshalYAML refuses a fraction, which the decoder would cut off.
func (d *Densities) UnmarshalYAML(list *yaml.Node) error {
	for _, n := range list.Content {
		if n.ShortTag() == "!!float" {
			return fmt.Errorf("line %d: densities: %s, want whole numbers", n.Line, n.Value)
		}
	}
	return list.Decode((*[]int)(d))
}

// What a scenario may ask for. Above and below a guest ends in the middle of a run,
// or a window says nothing.
const (
	// maxDensity is twice what kubelet takes by default, and then some.
	maxDensity = 256
	// maxRate is beyond every client: it leaves a request a thousand instructions.
	maxRate = 1_000_000
	maxKeys = 1_000_000 // all are stored before the first window
	// MaxValueBytes is memcached's own limit.
	MaxValueBytes = 1 << 20
	// minWindow is two of the ticks by which the kernel books time, and more.
	minWindow = 10 * time.Millisecond
)

// upTo is false for what is no number, too.
func upTo(x, most float64) bool { return x >= 0 && x <= most }

// Step is one rung of the ladder at one operating point.
type Step struct {
	Index   int     `json:"index"` // in Scenario.Steps
	Density int     `json:"density"`
	Point   string  `json:"point,omitempty"`
	Rate    float64 `json:"rate_rps,omitempty"`
	Clients int     `json:"clients,omitempty"`
}

// Clients is how many connections a step has.
func (s Scenario) Clients(step Step) int { return cmp.Or(step.Clients, s.Load.Conns) }

// Steps lists the scenario's windows in the order in which a run takes them:
// the whole ladder at each operating point.
func (s Scenario) Steps() []Step {
	points := s.Points
	if len(points) == 0 {
		points = []Point{{}}
	}
	var out []Step
	for _, p := range points {
		rate := p.Rate
		if p.Share > 0 {
			rate = p.Share * s.MaxRate
		}
		for _, d := range s.Densities {
			out = append(out, Step{Index: len(out), Density: d, Point: p.Name, Rate: rate, Clients: p.Clients})
		}
	}
	return out
}

// Visit is how many steps before this one are of its operating point and density: 0
// on the ladder's way up, 1 on its way down. Steps of one visit have the same
// arrivals at all densities, in all arms.
func (s Scenario) Visit(step Step) int {
	n := 0
	for _, before := range s.Steps()[:step.Index] {
		if before.Point == step.Point && before.Density == step.Density {
			n++
		}
	}
	return n
}

// ParseScenario reads a scenario file. Errors name the file and the field.
func ParseScenario(file string, data []byte) (Scenario, error) {
	var s Scenario
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&s); err != nil {
		return s, fmt.Errorf("read scenario %s: %w", file, err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return s, fmt.Errorf("read scenario %s: more than one document", file)
	}
	if err := s.Validate(); err != nil {
		return s, fmt.Errorf("read scenario %s: %w", file, err)
	}
	if _, err := ParseArms(s.Arms); err != nil {
		return s, fmt.Errorf("read scenario %s: arms: %w", file, err)
	}
	if s.Seeds < 1 {
		return s, fmt.Errorf("read scenario %s: seeds: %d, want at least 1", file, s.Seeds)
	}
	return s, nil
}

// Validate names everything that makes no sense in s, by field.
func (s Scenario) Validate() error {
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s", field, fmt.Sprintf(format, args...)))
	}
	for field, value := range map[string]string{"name": s.Name, "title": s.Title, "measures": s.Measures, "topology": s.Topology} {
		if value == "" {
			bad(field, "missing")
		}
	}
	if shape, err := topology.ParseShape(s.Topology); err != nil && s.Topology != "" {
		bad("topology", "%v", err)
	} else if shape.CPUs() == 1 {
		bad("topology", "%s is one CPU, want at least 2: pods and the instrument need one each", s.Topology)
	}
	if len(s.Densities) == 0 {
		bad("densities", "no step in the ladder")
	}
	for _, d := range s.Densities {
		if d < 0 || d > maxDensity {
			bad("densities", "%d, want 0 to %d", d, maxDensity)
		}
	}
	if s.Peers != nil && s.Peers.RequestMilliCPU < 0 {
		bad("peers.request_millicpu", "%d is negative", s.Peers.RequestMilliCPU)
	}
	for i, name := range s.Background {
		if BatchOf(name) == nil {
			bad(fmt.Sprintf("background[%d]", i), "%q is none of %s", name, strings.Join(batchNames(), ", "))
		}
	}
	s.validatePrimary(bad)
	s.validateLoad(bad)
	s.validatePoints(bad)
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

func (s Scenario) validatePrimary(bad func(field, format string, args ...any)) {
	kind, p := s.KindOf(), s.Primary
	if kind.Name == "" {
		var known []string
		for _, k := range Kinds() {
			known = append(known, k.Name)
		}
		bad("primary.kind", "%q is none of %s", p.Kind, strings.Join(known, ", "))
		return
	}
	if p.Threads < 1 {
		bad("primary.threads", "%d, want at least 1", p.Threads)
	}
	if p.RequestMilliCPU < 0 {
		bad("primary.request_millicpu", "%d is negative", p.RequestMilliCPU)
	}
	want := slices.Sorted(slices.Values(kind.Params))
	if got := slices.Sorted(maps.Keys(p.Params)); !slices.Equal(got, want) {
		bad("primary.params", "%v, but %s has %v", got, kind.Name, want)
	}
	for name, value := range p.Params {
		if !upTo(value, math.MaxFloat64) {
			bad("primary.params."+name, "%g, want a number, 0 or more", value)
		}
	}
	for i, pod := range p.Pods {
		field := fmt.Sprintf("primary.pods[%d]", i)
		if pod.Tier != "standard" && pod.Tier != "background" {
			bad(field+".tier", "%q, want standard or background", pod.Tier)
		}
		if pod.Name == "" || pod.Weight < 1 || pod.Weight > 10000 || pod.Threads < 1 {
			bad(field, "name %q, weight %d (1 to 10000) and %d threads make no pod", pod.Name, pod.Weight, pod.Threads)
		}
		if pod.Point != "" && !slices.ContainsFunc(s.Points, func(at Point) bool { return at.Name == pod.Point }) {
			bad(field+".point", "%q is none of the scenario's", pod.Point)
		}
	}
	s.validateLimits(bad)
	if driven := kind.Server || kind.Agent; driven != s.Instrument {
		bad("instrument", "%v, but %s is driven by a client: %v", s.Instrument, kind.Name, driven)
	}
}

// validateLimits wants limits where one pod has them, within what the kernel
// takes, and changes in order and within the window.
func (s Scenario) validateLimits(bad func(field, format string, args ...any)) {
	p := s.Primary
	limits := p.Limited()
	if p.LimitMilliCPU < 0 || p.LimitMilliCPU > 0 && p.Kind == "chain" {
		bad("primary.limit_millicpu", "%d is no limit of one pod", p.LimitMilliCPU)
	}
	if len(limits) == 0 && len(p.Containers)+len(p.LimitSteps) > 0 {
		bad("primary.limit_millicpu", "missing, but containers or steps of it are given")
		return
	}
	names := map[string]bool{PodLimit: true}
	for i, c := range p.Containers {
		field := fmt.Sprintf("primary.containers[%d]", i)
		if c.Name == "" || strings.ContainsAny(c.Name, "/.") || names[c.Name] || c.LimitMilliCPU < 0 || c.Threads < 1 {
			bad(field, "name %q, limit %d and %d threads make no container", c.Name, c.LimitMilliCPU, c.Threads)
		}
		names[c.Name] = true
	}
	if len(p.Containers) > 0 && (p.Kind != "requests" || len(p.LimitSteps) > 0) {
		bad("primary.containers", "only requests run in several containers, and without limit_steps")
	}
	last := time.Duration(-1)
	for i, step := range p.LimitSteps {
		if step.LimitMilliCPU < 1 || step.At <= last || step.At >= s.Load.Window {
			bad(fmt.Sprintf("primary.limit_steps[%d]", i), "%d at %v: steps lie in order within the window of %v", step.LimitMilliCPU, step.At, s.Load.Window)
		}
		last = step.At
	}
}

func (s Scenario) validateLoad(bad func(field, format string, args ...any)) {
	l := s.Load
	if l.Window < minWindow {
		bad("load.window", "%v, want at least %v", l.Window, minWindow)
	}
	if l.Warmup < 0 || l.Pad < 0 {
		bad("load.pad", "warmup %v and pad %v must not be negative", l.Warmup, l.Pad)
	}
	if l.SetEvery < 0 {
		bad("load.set_every", "%d, want 0 or more", l.SetEvery)
	}
	kind, leastValue := s.KindOf(), 0
	if kind.Stores {
		leastValue = 1
	}
	if l.ValueBytes < leastValue || l.ValueBytes > MaxValueBytes {
		bad("load.value_bytes", "%d, want %d to %d", l.ValueBytes, leastValue, MaxValueBytes)
	}
	if !kind.Server {
		return
	}
	if !kind.Tool && (l.Keys < 1 || l.Keys > maxKeys) {
		bad("load.keys", "%d, want 1 to %d", l.Keys, maxKeys)
	}
	if l.Arrivals != ArrivalsPoisson && l.Arrivals != ArrivalsConstant {
		bad("load.arrivals", "%q, want %s or %s", l.Arrivals, ArrivalsPoisson, ArrivalsConstant)
	}
	if l.Conns < s.Primary.Threads {
		bad("load.conns", "%d connections cannot feed %d threads", l.Conns, s.Primary.Threads)
	}
	if len(s.Points) == 0 && !kind.Tool {
		bad("points", "a server needs at least one rate")
	}
}

func (s Scenario) validatePoints(bad func(field, format string, args ...any)) {
	if !upTo(s.MaxRate, maxRate) {
		bad("max_rate", "%g, want 0 to %d a second", s.MaxRate, maxRate)
	}
	seen := map[string]bool{}
	for i, p := range s.Points {
		field := fmt.Sprintf("points[%d]", i)
		if p.Name == "" || seen[p.Name] {
			bad(field+".name", "%q is empty or given twice", p.Name)
		}
		seen[p.Name] = true
		switch {
		case !upTo(p.Rate, maxRate):
			bad(field+".rate", "%g, want 0 to %d a second", p.Rate, maxRate)
		case !upTo(p.Share, 1):
			bad(field+".share", "%g, want at most 1, all of max_rate", p.Share)
		case p.Rate > 0 && p.Share > 0, s.KindOf().Server && !s.KindOf().Tool && p.Rate+p.Share == 0:
			bad(field, "give either a rate or a share, and more than 0")
		case p.Share > 0 && s.MaxRate <= 0:
			bad(field+".share", "is of max_rate, which is missing")
		case p.Clients < 0 || p.Clients > 0 && !s.KindOf().Tool:
			bad(field+".clients", "%d, but %s has no client of its own", p.Clients, s.Primary.Kind)
		}
	}
}
