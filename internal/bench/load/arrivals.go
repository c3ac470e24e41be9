// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/temper-sched/temper/internal/bench"
)

// arrival is one request to be: when it is due and what it asks.
type arrival struct {
	due  int64 // ns since the client's start
	key  uint32
	kind uint8 // which of the protocol's kinds
}

// arrivals draws the requests of total. The same seed gives the same requests,
// whatever the server does: the schedule is fixed before the first is sent.
// shares are the weights of the kinds of requests.
func arrivals(process string, seed uint64, rate float64, total time.Duration, keys int, shares []int) ([]arrival, error) {
	// Two streams, so that what is asked does not depend on when.
	times, picks := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
	mean := 1e9 / rate
	var gap func() float64
	at := 0.0
	switch process {
	case bench.ArrivalsPoisson:
		gap = func() float64 { return -math.Log(1-times.Float64()) * mean }
	case bench.ArrivalsConstant:
		// Where in the first gap it begins is the seed's.
		gap, at = func() float64 { return mean }, -times.Float64()*mean
	default:
		return nil, fmt.Errorf("draw arrivals: unknown process %q", process)
	}
	sum := 0
	for _, share := range shares {
		sum += share
	}
	out := make([]arrival, 0, int(rate*total.Seconds()*1.1)+16)
	for {
		if at += gap(); at >= float64(total) {
			return out, nil
		}
		a := arrival{due: int64(at), key: uint32(picks.IntN(keys))}
		for pick := picks.IntN(sum); pick >= shares[a.kind]; a.kind++ {
			pick -= shares[a.kind]
		}
		out = append(out, a)
	}
}
