// SPDX-License-Identifier: Apache-2.0

// Package chain is an application of 19 services that call each other over
// HTTP: what happens to an end-to-end tail when every hop has one.
//
// Its shape is that of DeathStarBench's hotel reservation: the same services,
// caches and stores, who calls whom, in which order and how deep. What a
// service computes and what a store holds is made up: each burns its own number
// of instructions and answers with its own number of bytes. The mix of requests
// is read-only, so that an hour's run is like its first second.
//
//	frontend ─┬─ discovery                       (some requests)
//	          ├─ search ─┬─ geo ── geo-store     (some)
//	          │          └─ rate ─┬─ rate-cache
//	          │                   └─ rate-store  (misses, two at a time)
//	          ├─ reservation ─┬─ reservation-cache
//	          │               └─ reservation-store (misses, two at a time)
//	          ├─ profile ─┬─ profile-cache
//	          │           └─ profile-store       (misses, two at a time)
//	          ├─ recommendation ── recommendation-store (some)
//	          ├─ user ── user-store
//	          └─ tracer                          (some, after the answer)
//
// Which requests are "some" or a miss follows from the request's number alone,
// so that the same load asks the same of every service under every scheduler.
package chain

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Service is one process of the chain.
type Service struct {
	Name string
	// Work is what it computes for a request, as time at one instruction a
	// nanosecond; half of it before it calls others, half after.
	Work time.Duration
	// Bytes is the length of its answers.
	Bytes int

	stages []stage
}

// stage is a call that a service makes for some of its requests. Its stages
// follow each other.
type stage struct {
	to string
	// on lists the kinds of requests that it is for.
	on []kind
	// every is how many requests share one call; 1 means that each makes it.
	every uint32
	// times is how many calls are made at the same time.
	times int
	// after means that the answer does not wait for the call.
	after bool
}

// kind is what a request asks for.
type kind string

// The kinds of requests.
const (
	search    kind = "search"
	recommend kind = "recommend"
	login     kind = "user"
)

var kinds = []kind{search, recommend, login}

// Target is a kind of request as a load generator asks for it.
type Target struct {
	Path   string // what a key is appended to
	Weight int    // its share of the requests, in parts of all weights
}

// Mix is the mix of requests, the application's own without its writes.
func Mix() []Target {
	return []Target{{path(search), 60}, {path(recommend), 39}, {path(login), 1}}
}

func path(k kind) string { return "/" + string(k) + "/" }

// How often a call is made that is not made for every request.
const (
	perLookup = 16 // requests to one look at the service discovery
	perTrace  = 10 // requests to one trace
	perReload = 4  // requests to one that a service's own memory cannot serve
	perMiss   = 8  // requests to one that misses the cache
	fanOut    = 2  // keys of a missing request that are fetched at the same time
)

// Services lists the chain, callers before callees. The first is its entrance.
func Services() []Service {
	const us = time.Microsecond
	return []Service{
		{"frontend", 40 * us, 2000, []stage{
			{"discovery", kinds, perLookup, 1, false},
			{"search", []kind{search}, 1, 1, false},
			{"reservation", []kind{search}, 1, 1, false},
			{"recommendation", []kind{recommend}, 1, 1, false},
			{"profile", []kind{search, recommend}, 1, 1, false},
			{"user", []kind{login}, 1, 1, false},
			{"tracer", kinds, perTrace, 1, true},
		}},
		{"search", 20 * us, 200, []stage{
			{"geo", kinds, 1, 1, false},
			{"rate", kinds, 1, 1, false},
		}},
		{"geo", 40 * us, 200, []stage{{"geo-store", kinds, perReload, 1, false}}},
		{"rate", 30 * us, 500, cached("rate")},
		{"reservation", 30 * us, 200, cached("reservation")},
		{"profile", 40 * us, 1500, cached("profile")},
		{"recommendation", 40 * us, 200, []stage{{"recommendation-store", kinds, perReload, 1, false}}},
		{"user", 50 * us, 50, []stage{{"user-store", kinds, 1, 1, false}}},
		{"rate-cache", 5 * us, 500, nil},
		{"reservation-cache", 5 * us, 100, nil},
		{"profile-cache", 5 * us, 1500, nil},
		{"geo-store", 40 * us, 1000, nil},
		{"rate-store", 40 * us, 500, nil},
		{"reservation-store", 40 * us, 200, nil},
		{"profile-store", 40 * us, 1000, nil},
		{"recommendation-store", 40 * us, 1000, nil},
		{"user-store", 40 * us, 100, nil},
		{"discovery", 10 * us, 100, nil},
		{"tracer", 10 * us, 20, nil},
	}
}

// cached are the calls of a service that looks into its cache first.
func cached(name string) []stage {
	return []stage{{name + "-cache", kinds, 1, 1, false}, {name + "-store", kinds, perMiss, fanOut, false}}
}

// firstPort is the first service's; the others follow in order.
const firstPort = 9100

// Addr is where the service called name listens on the node.
func Addr(name string) (string, error) {
	i := index(name)
	if i < 0 {
		return "", fmt.Errorf("find service %s: the chain has none of that name", name)
	}
	return "127.0.0.1:" + strconv.Itoa(firstPort+i), nil
}

func index(name string) int {
	return slices.IndexFunc(Services(), func(s Service) bool { return s.Name == name })
}

// makes says whether request number makes the stage's call. Numbers count up;
// they are scattered here, so that no two calls share a rhythm.
func (s stage) makes(k kind, number uint32) bool {
	if !slices.Contains(s.on, k) {
		return false
	}
	if s.every == 1 {
		return true
	}
	h := uint64(number)
	for _, c := range []byte(s.to) {
		h = (h ^ uint64(c)) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	return h%uint64(s.every) == 0
}
