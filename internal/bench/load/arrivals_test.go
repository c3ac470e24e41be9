// SPDX-License-Identifier: Apache-2.0

package load

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/temper-sched/temper/internal/bench"
)

const (
	testRate  = 5000.0
	testTotal = 20 * time.Second
)

func draw(t *testing.T, process string, seed uint64, shares ...int) []arrival {
	t.Helper()
	out, err := arrivals(process, seed, testRate, testTotal, 100, shares)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// gaps returns mean and standard deviation of the times between requests.
func gaps(all []arrival) (mean, deviation float64) {
	var sum, squares float64
	for i, a := range all[1:] {
		gap := float64(a.due - all[i].due)
		sum, squares = sum+gap, squares+gap*gap
	}
	n := float64(len(all) - 1)
	mean = sum / n
	return mean, math.Sqrt(max(squares/n-mean*mean, 0))
}

func TestArrivalsRepeat(t *testing.T) {
	for _, process := range []string{bench.ArrivalsPoisson, bench.ArrivalsConstant} {
		a, b := draw(t, process, 7, 9, 1), draw(t, process, 7, 9, 1)
		if !slices.Equal(a, b) {
			t.Errorf("%s: the same seed drew different requests", process)
		}
		if c := draw(t, process, 8, 9, 1); c[0] == a[0] {
			t.Errorf("%s: another seed drew the same first request", process)
		}
		if got := float64(len(a)) / testTotal.Seconds(); math.Abs(got/testRate-1) > .02 {
			t.Errorf("%s: drew %.0f a second, want %.0f", process, got, testRate)
		}
	}
	if _, err := arrivals("bursts", 1, testRate, testTotal, 1, []int{1}); err == nil {
		t.Error("an unknown process was drawn")
	}
}

func TestArrivalsArePoisson(t *testing.T) {
	all := draw(t, bench.ArrivalsPoisson, 7, 1)
	// The gaps of a Poisson process have a standard deviation equal to their
	// mean, and 1/e of them are longer than it.
	mean, deviation := gaps(all)
	if cv := deviation / mean; math.Abs(cv-1) > .03 {
		t.Errorf("coefficient of variation of the gaps is %.3f, want 1", cv)
	}
	longer := 0
	for i, a := range all[1:] {
		if float64(a.due-all[i].due) > mean {
			longer++
		}
	}
	if share := float64(longer) / float64(len(all)-1); math.Abs(share-1/math.E) > .01 {
		t.Errorf("%.3f of the gaps are longer than the mean, want %.3f", share, 1/math.E)
	}
}

func TestArrivalsAreConstant(t *testing.T) {
	all := draw(t, bench.ArrivalsConstant, 7, 1)
	if mean, deviation := gaps(all); math.Abs(mean-1e9/testRate) > 1 || deviation > 1 {
		t.Errorf("gaps of %.1f ± %.1f ns, want %.1f ± 0", mean, deviation, 1e9/testRate)
	}
}

func TestArrivalsAskByShare(t *testing.T) {
	all := draw(t, bench.ArrivalsPoisson, 7, 60, 39, 1)
	var kinds [3]int
	keys := map[uint32]int{}
	for _, a := range all {
		kinds[a.kind]++
		keys[a.key]++
	}
	for kind, want := range []float64{.60, .39, .01} {
		if got := float64(kinds[kind]) / float64(len(all)); math.Abs(got-want) > .01 {
			t.Errorf("%.3f of the requests are of kind %d, want %.2f", got, kind, want)
		}
	}
	if len(keys) != 100 {
		t.Errorf("%d of 100 keys are asked for", len(keys))
	}
}
