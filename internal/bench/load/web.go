// SPDX-License-Identifier: Apache-2.0

package load

import (
	"net/http"

	"github.com/temper-sched/temper/internal/bench/http1"
)

// web is HTTP/1.1 with several requests under way on a connection, each with
// its number, which the server repeats.
type web struct{ targets []Target }

func (w web) ask(b []byte, a arrival, number uint32) []byte {
	var path [256]byte
	target := append(path[:0], w.targets[a.kind].Path...)
	return http1.AppendRequest(b, appendDigits(target, a.key, keyDigits), number)
}

func (w web) read(b []byte, _ arrival, number uint32) (ok bool, took int, err error) {
	res, took, err := http1.ParseResponse(b)
	if err != nil || took == 0 {
		return false, 0, err
	}
	return res.Status == http.StatusOK && res.Number == number, took, nil
}

func (w web) shares() []int {
	var out []int
	for _, t := range w.targets {
		out = append(out, t.Weight)
	}
	return out
}

// before is nothing: the services know what they serve.
func (w web) before() []arrival { return nil }
