// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"slices"

	"github.com/temper-sched/temper/internal/bench"
)

// Protocol is what a server speaks.
type Protocol string

// The protocols, by the names that a Spec gives them.
const (
	Memcached Protocol = "memcached"
	Redis     Protocol = "redis"
	HTTP      Protocol = "http"
)

// Target is one kind of request of an HTTP load.
type Target struct {
	Path   string `json:"path"`   // a key is appended to it
	Weight int    `json:"weight"` // its share of the requests, in parts of all weights
}

// protocol writes requests and reads answers. A connection's answers come in
// the order of its requests, so that the reader knows which one is next.
type protocol interface {
	// ask appends request number to b.
	ask(b []byte, a arrival, number uint32) []byte
	// read takes the answer to that request from the front of b: how many
	// bytes it has, 0 when it is not whole yet, and whether it is what was
	// asked for. An error is a stream in which no next answer can be found.
	read(b []byte, a arrival, number uint32) (ok bool, took int, err error)
	// shares are the kinds of requests, and of how many parts of all each is.
	shares() []int
	// before are requests to be made, one by one, before the load begins.
	before() []arrival
}

// The kinds of requests to a store.
const (
	get = iota
	set
)

func (s Spec) protocol() (protocol, error) {
	l := s.Load
	switch s.Protocol {
	case Memcached, Redis:
		if l.Keys < 1 || l.ValueBytes < 1 || l.ValueBytes > maxValue {
			return nil, fmt.Errorf("load %s: %d keys with values of %d bytes", s.Protocol, l.Keys, l.ValueBytes)
		}
		stored := store{keys: l.Keys, setEvery: l.SetEvery, value: slices.Repeat([]byte{'v'}, l.ValueBytes)}
		if s.Protocol == Redis {
			return resp{stored}, nil
		}
		return meta{stored}, nil
	case HTTP:
		if len(s.Targets) == 0 || l.Keys < 1 {
			return nil, fmt.Errorf("load http: %d targets and %d keys", len(s.Targets), l.Keys)
		}
		return web{targets: s.Targets}, nil
	}
	return nil, fmt.Errorf("load: unknown protocol %q", s.Protocol)
}

// store is what the clients of key-value stores have in common. A key's value
// begins with the key, so that the value of another cannot pass unseen.
type store struct {
	keys, setEvery int
	value          []byte
}

func (s store) shares() []int {
	if s.setEvery < 1 {
		return []int{get: 1}
	}
	return []int{get: s.setEvery - 1, set: 1}
}

// before stores every key once, so that no get misses.
func (s store) before() []arrival {
	all := make([]arrival, s.keys)
	for key := range all {
		all[key] = arrival{key: uint32(key), kind: set}
	}
	return all
}

const maxValue = bench.MaxValueBytes

// appendValue appends the key's value.
func (s store) appendValue(b []byte, key uint32) []byte {
	at := len(b)
	b = append(b, s.value...)
	var name [keyBytes]byte
	copy(b[at:], appendKey(name[:0], key))
	return b
}

// isValue says whether b is the key's value, as far as its length and its
// beginning tell.
func (s store) isValue(b []byte, key uint32) bool {
	if len(b) != len(s.value) {
		return false
	}
	var name [keyBytes]byte
	n := min(keyBytes, len(b))
	return string(b[:n]) == string(appendKey(name[:0], key)[:n])
}

const (
	keyPrefix = "key-"
	keyDigits = 8
	keyBytes  = len(keyPrefix) + keyDigits
)

// appendKey writes "key-00000042".
func appendKey(b []byte, key uint32) []byte {
	return appendDigits(append(b, keyPrefix...), key, keyDigits)
}

// appendDigits writes n in decimal, padded to width: a fixed length keeps the
// cost of a request constant.
func appendDigits(b []byte, n uint32, width int) []byte {
	at := len(b)
	b = append(b, "0000000000"[:width]...)
	for i := at + width - 1; i >= at && n > 0; i-- {
		b[i] = byte('0' + n%10)
		n /= 10
	}
	return b
}

func appendDecimal(b []byte, n int) []byte {
	if n >= 10 {
		b = appendDecimal(b, n/10)
	}
	return append(b, byte('0'+n%10))
}
