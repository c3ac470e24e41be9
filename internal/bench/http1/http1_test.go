// SPDX-License-Identifier: Apache-2.0

package http1

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestMessagesSurvive(t *testing.T) {
	request := AppendRequest(nil, []byte("/search/42"), 4_294_967_295)
	req, took, err := ParseRequest(append(request, "GET"...))
	if err != nil || took != len(request) || string(req.Path) != "/search/42" || req.Number != 4_294_967_295 {
		t.Errorf("request %+v, %d of %d bytes, %v", req, took, len(request), err)
	}
	response := AppendResponse(nil, 503, 7, []byte("no"))
	res, took, err := ParseResponse(append(response, "HTTP"...))
	if err != nil || took != len(response) || res.Status != 503 || res.Number != 7 || string(res.Body) != "no" {
		t.Errorf("response %+v, %d of %d bytes, %v", res, took, len(response), err)
	}
	for cut := range len(response) {
		if _, took, err := ParseResponse(response[:cut]); took != 0 || err != nil {
			t.Fatalf("%d of %d bytes: took %d, %v", cut, len(response), took, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		in, want string
		parse    func([]byte) error
	}{
		"other method":      {"POST / HTTP/1.1\r\nX-Request-Number: 1\r\n\r\n", "no line", request},
		"other version":     {"GET / HTTP/1.0\r\nX-Request-Number: 1\r\n\r\n", "no line", request},
		"relative path":     {"GET a HTTP/1.1\r\nX-Request-Number: 1\r\n\r\n", "no line", request},
		"body in a GET":     {"GET / HTTP/1.1\r\nX-Request-Number: 1\r\nContent-Length: 3\r\n\r\n", "Content-Length", request},
		"no number":         {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "X-Request-Number", request},
		"two numbers":       {"GET / HTTP/1.1\r\nX-Request-Number: 1\r\nx-request-number: 2\r\n\r\n", "X-Request-Number", request},
		"long head":         {"GET / HTTP/1.1\r\nA: " + strings.Repeat("a", MaxHead), "longer", request},
		"many lines":        {"GET / HTTP/1.1\r\n" + strings.Repeat("A: a\r\n", 99), "longer", request},
		"no header line":    {"GET / HTTP/1.1\r\nnothing\r\n", "no line", request},
		"empty line":        {"\r\n", "no line", response},
		"short status":      {"HTTP/1.1 20\r\n\r\n", "no line", response},
		"long status":       {"HTTP/1.1 2000\r\n\r\n", "no line", response},
		"no length":         {"HTTP/1.1 200 OK\r\nX-Request-Number: 1\r\n\r\n", "Content-Length", response},
		"length too long":   {"HTTP/1.1 200 OK\r\nContent-Length: 1048577\r\n\r\n", "Content-Length", response},
		"length overflows":  {"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", "Content-Length", response},
		"negative length":   {"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "Content-Length", response},
		"chunked":           {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "Content-Length", response},
		"answer, no number": {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "X-Request-Number", response},
	} {
		if err := tc.parse([]byte(tc.in)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want one with %q", name, err, tc.want)
		}
	}
}

func request(b []byte) error  { _, _, err := ParseRequest(b); return err }
func response(b []byte) error { _, _, err := ParseResponse(b); return err }

// What we write is understood by net/http's server, and what it answers by us.
func TestAgainstNetHTTP(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request-Number", r.Header.Get("X-Request-Number"))
		_, _ = io.WriteString(w, "you asked for "+r.URL.Path)
	}))
	defer srv.Close()
	nc, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	var out []byte
	for number := range uint32(3) {
		out = AppendRequest(out, []byte("/rate"), number)
	}
	if _, err := nc.Write(out); err != nil {
		t.Fatal(err)
	}
	in, filled := make([]byte, 4096), 0
	for number := uint32(0); number < 3; {
		res, took, err := ParseResponse(in[:filled])
		if err != nil {
			t.Fatal(err)
		}
		if took == 0 {
			n, err := nc.Read(in[filled:])
			if err != nil {
				t.Fatal(err)
			}
			filled += n
			continue
		}
		if res.Status != 200 || res.Number != number || string(res.Body) != "you asked for /rate" {
			t.Errorf("answer %d: %+v", number, res)
		}
		filled = copy(in, in[took:filled])
		number++
	}
}

func TestNothingIsAllocated(t *testing.T) {
	buf, body := make([]byte, 0, 1024), []byte("body")
	if n := testing.AllocsPerRun(100, func() {
		b := AppendRequest(buf, []byte("/geo/1"), 12345)
		if _, took, err := ParseRequest(b); took != len(b) || err != nil {
			t.Fatal(took, err)
		}
		b = AppendResponse(buf, 200, 12345, body)
		if _, took, err := ParseResponse(b); took != len(b) || err != nil {
			t.Fatal(took, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations for a request and its answer", n)
	}
}

func FuzzParseRequest(f *testing.F) {
	f.Add([]byte("GET /a HTTP/1.1\r\nX-Request-Number: 1\r\n\r\n"))
	f.Add([]byte("GET /a HTTP/1.1\nx-request-number:\t1\n\nGET"))
	f.Fuzz(func(t *testing.T, in []byte) {
		req, took, err := ParseRequest(in)
		if took < 0 || took > len(in) || (err != nil && took != 0) {
			t.Fatalf("took %d of %d bytes, %v", took, len(in), err)
		}
		if took == 0 {
			return
		}
		again, took, err := ParseRequest(AppendRequest(nil, req.Path, req.Number))
		if err != nil || took == 0 || again.Number != req.Number || !bytes.Equal(again.Path, req.Path) {
			t.Fatalf("%+v became %+v, %v", req, again, err)
		}
	})
}

func FuzzParseResponse(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nX-Request-Number: 1\r\nContent-Length: 2\r\n\r\nok"))
	f.Add([]byte("HTTP/1.1 404\r\ncontent-length: 0\r\nx-request-number: 4294967295\r\n\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		res, took, err := ParseResponse(in)
		if took < 0 || took > len(in) || (err != nil && took != 0) {
			t.Fatalf("took %d of %d bytes, %v", took, len(in), err)
		}
		if took == 0 {
			return
		}
		again, took, err := ParseResponse(AppendResponse(nil, res.Status, res.Number, res.Body))
		if err != nil || took == 0 || again.Status != res.Status || again.Number != res.Number || !bytes.Equal(again.Body, res.Body) {
			t.Fatalf("%+v became %+v, %v", res, again, err)
		}
	})
}
