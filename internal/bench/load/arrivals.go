// SPDX-License-Identifier: Apache-2.0

package load

import (
	"math"
	"math/rand/v2"
	"time"
)

// arrival is one request to be: when it is due and what it asks.
type arrival struct {
	due int64 // ns since the client's start
	key uint32
	set bool
}

// arrivals draws a Poisson process of rate requests a second over total. The
// same seed gives the same requests, whatever the server does: the schedule is
// fixed before the first is sent.
func arrivals(seed uint64, rate float64, total time.Duration, keys, setEvery int) []arrival {
	// Two streams, so that what is asked does not depend on when.
	gaps, picks := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
	out := make([]arrival, 0, int(rate*total.Seconds()*1.1)+16)
	for at := 0.0; ; {
		at += -math.Log(1-gaps.Float64()) / rate * 1e9
		if at >= float64(total) {
			return out
		}
		a := arrival{due: int64(at), key: uint32(picks.IntN(keys))}
		if setEvery > 0 {
			a.set = picks.IntN(setEvery) == 0
		}
		out = append(out, a)
	}
}
