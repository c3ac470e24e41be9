// SPDX-License-Identifier: Apache-2.0

package load

import (
	"strings"
	"testing"

	"github.com/temper-sched/temper/internal/bench"
)

// protocols are the three, with values of three bytes.
func protocols(t testing.TB) map[Protocol]protocol {
	t.Helper()
	out := map[Protocol]protocol{}
	for _, name := range []Protocol{Memcached, Redis, HTTP} {
		p, err := Spec{
			Protocol: name, Targets: []Target{{"/search/", 2}, {"/user/", 1}},
			Load: bench.Load{Keys: 10, ValueBytes: 3, SetEvery: 10},
		}.protocol()
		if err != nil {
			t.Fatal(err)
		}
		out[name] = p
	}
	return out
}

func TestRead(t *testing.T) {
	all := protocols(t)
	for name, tc := range map[string]struct {
		protocol Protocol
		in       string
		kind     uint8
		ok       bool
		took     int
		broken   bool
	}{
		"value":             {Memcached, "VA 3 O0000000042\r\nkey\r\nHD", get, true, 23, false},
		"value of another":  {Memcached, "VA 3 O0000000042\r\nabc\r\nHD", get, false, 23, false},
		"stored":            {Memcached, "HD O0000000042\r\n", set, true, 16, false},
		"stored, not asked": {Memcached, "HD O0000000042\r\n", get, false, 16, false},
		"other number":      {Memcached, "HD O0000000043\r\n", set, false, 16, false},
		"miss":              {Memcached, "EN O0000000042\r\n", get, false, 16, false},
		"other length":      {Memcached, "VA 2 O0000000042\r\nab\r\n", get, false, 22, false},
		"half a line":       {Memcached, "VA 3 O00000", get, false, 0, false},
		"half a value":      {Memcached, "VA 3 O0000000042\r\nke", get, false, 0, false},
		"no number":         {Memcached, "EN\r\n", get, false, 0, true},
		"not the protocol":  {Memcached, "SERVER_ERROR out of memory\r\n", get, false, 0, true},
		"number no number":  {Memcached, "HD Oabc\r\n", get, false, 0, true},
		"no length":         {Memcached, "VA x O0000000042\r\n", get, false, 0, true},
		"huge length":       {Memcached, "VA 9999999999 O0000000042\r\n", get, false, 0, true},
		"endless line":      {Memcached, strings.Repeat("V", 3000), get, false, 0, true},
		"nothing":           {Memcached, "", get, false, 0, false},
		"only a line's end": {Memcached, "\r\n", get, false, 0, true},

		"redis value":            {Redis, "$3\r\nkey\r\n+OK", get, true, 9, false},
		"redis value of another": {Redis, "$3\r\nabc\r\n", get, false, 9, false},
		"redis value to a set":   {Redis, "$3\r\nkey\r\n", set, false, 9, false},
		"redis stored":           {Redis, "+OK\r\n", set, true, 5, false},
		"redis queued":           {Redis, "+QUEUED\r\n", set, false, 9, false},
		"redis miss":             {Redis, "$-1\r\n", get, false, 5, false},
		"redis error":            {Redis, "-LOADING wait\r\n", get, false, 15, false},
		"redis number":           {Redis, ":7\r\n", get, false, 4, false},
		"redis half a line":      {Redis, "$3", get, false, 0, false},
		"redis half a value":     {Redis, "$3\r\nkey\r", get, false, 0, false},
		"redis no length":        {Redis, "$x\r\n", get, false, 0, true},
		"redis array":            {Redis, "*1\r\n:1\r\n", get, false, 0, true},
		"redis empty line":       {Redis, "\r\n", get, false, 0, true},
		"redis endless line":     {Redis, strings.Repeat("+", 3000), get, false, 0, true},

		"http answer":       {HTTP, "HTTP/1.1 200 OK\r\nX-Request-Number: 42\r\nContent-Length: 1\r\n\r\nxH", 0, true, 61, false},
		"http other number": {HTTP, "HTTP/1.1 200 OK\r\nX-Request-Number: 41\r\nContent-Length: 1\r\n\r\nx", 0, false, 61, false},
		"http error":        {HTTP, "HTTP/1.1 502 \r\nX-Request-Number: 42\r\nContent-Length: 0\r\n\r\n", 1, false, 58, false},
		"http half a body":  {HTTP, "HTTP/1.1 200 OK\r\nX-Request-Number: 42\r\nContent-Length: 2\r\n\r\nx", 0, false, 0, false},
		"http garbage":      {HTTP, "VA 3\r\n\r\n", 0, false, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			ok, took, err := all[tc.protocol].read([]byte(tc.in), arrival{key: 5, kind: tc.kind}, 42)
			if (err != nil) != tc.broken {
				t.Fatalf("error %v", err)
			}
			if took != tc.took || ok != tc.ok {
				t.Errorf("ok %v with %d bytes, want %v with %d", ok, took, tc.ok, tc.took)
			}
		})
	}
}

func TestAsk(t *testing.T) {
	all := protocols(t)
	for want, tc := range map[string]struct {
		protocol Protocol
		kind     uint8
	}{
		"mg key-00000005 v O0000000042\r\n":                                          {Memcached, get},
		"ms key-00000005 3 O0000000042\r\nkey\r\n":                                   {Memcached, set},
		"*2\r\n$3\r\nGET\r\n$12\r\nkey-00000005\r\n":                                 {Redis, get},
		"*3\r\n$3\r\nSET\r\n$12\r\nkey-00000005\r\n$3\r\nkey\r\n":                    {Redis, set},
		"GET /user/00000005 HTTP/1.1\r\nHost: chain\r\nX-Request-Number: 42\r\n\r\n": {HTTP, 1},
	} {
		if got := all[tc.protocol].ask(nil, arrival{key: 5, kind: tc.kind}, 42); string(got) != want {
			t.Errorf("%s: got %q, want %q", tc.protocol, got, want)
		}
	}
}

func TestSpecWithoutUseIsRefused(t *testing.T) {
	for name, s := range map[string]Spec{
		"unknown protocol": {Protocol: "gopher", Load: bench.Load{Keys: 1, ValueBytes: 1}},
		"no value":         {Protocol: Redis, Load: bench.Load{Keys: 1}},
		"no key":           {Protocol: Memcached, Load: bench.Load{ValueBytes: 1}},
		"no target":        {Protocol: HTTP, Load: bench.Load{Keys: 1}},
		"negative value":   {Protocol: Memcached, Load: bench.Load{Keys: 1, ValueBytes: -4000}},
		"huge value":       {Protocol: Memcached, Load: bench.Load{Keys: 1, ValueBytes: maxValue + 1}},
	} {
		if _, err := s.protocol(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestOnlyStoresWithSetsAreSet(t *testing.T) {
	if got := (store{}).shares(); len(got) != 1 {
		t.Errorf("a store without sets has the shares %v", got)
	}
	if got := (store{setEvery: 1}).shares(); got[get] != 0 || got[set] != 1 {
		t.Errorf("a store of sets alone has the shares %v", got)
	}
}

func fuzzRead(f *testing.F, name Protocol, seeds ...string) {
	p := protocols(f)[name]
	for _, s := range seeds {
		f.Add([]byte(s), uint8(get))
		f.Add([]byte(s), uint8(set))
	}
	f.Fuzz(func(t *testing.T, in []byte, kind uint8) {
		a := arrival{key: 5, kind: kind % 2}
		ok, took, err := p.read(in, a, 42)
		if took < 0 || took > len(in) || (took == 0 && ok) || (err != nil && took != 0) {
			t.Fatalf("ok %v, took %d of %d bytes, %v", ok, took, len(in), err)
		}
		if took == 0 {
			return
		}
		// An answer is the same whatever follows it, and no answer without its end.
		again, tookAgain, err := p.read(append(in[:took:took], "\r\nmore"...), a, 42)
		if again != ok || tookAgain != took || err != nil {
			t.Fatalf("ok %v with %d bytes, then %v with %d, %v", ok, took, again, tookAgain, err)
		}
		if _, short, _ := p.read(in[:took-1], a, 42); short != 0 {
			t.Fatalf("took %d bytes of %d, and %d without the last", took, len(in), short)
		}
	})
}

func FuzzReadMemcached(f *testing.F) {
	fuzzRead(f, Memcached, "VA 3 O0000000042\r\nkey\r\n", "VA 99999999999999999999 O1\r\n", "HD O0000000042\r\n", "EN O1\r\n")
}

func FuzzReadRedis(f *testing.F) {
	fuzzRead(f, Redis, "$3\r\nkey\r\n", "$-1\r\n", "+OK\r\n", "-ERR a\r\n", ":1\r\n", "*2\r\n")
}

func FuzzReadHTTP(f *testing.F) {
	fuzzRead(f, HTTP, "HTTP/1.1 200 OK\r\nX-Request-Number: 42\r\nContent-Length: 1\r\n\r\nx", "HTTP/1.1 502 \r\n\r\n")
}
