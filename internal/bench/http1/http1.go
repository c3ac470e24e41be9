// SPDX-License-Identifier: Apache-2.0

// Package http1 is the little of HTTP/1.1 that the laboratory's client and its
// chain of services speak: GET, Content-Length, connections that stay open, and
// a number per request which the answer repeats, so that an answer to another
// request cannot pass unseen.
//
// Messages are built in and parsed from the caller's buffers: nothing is
// allocated, so that a service of the chain makes no garbage and its tail is not
// the collector's. What it writes and reads is HTTP/1.1 that any other program
// understands; the tests hold it against net/http.
package http1

import (
	"bytes"
	"errors"
	"fmt"
)

// MaxHead bounds a message's head and MaxBody its body: who sends more is not of
// the laboratory.
const (
	MaxHead = 8 << 10
	MaxBody = 1 << 20
)

// numberHeader carries a request's number there and back.
const numberHeader = "X-Request-Number"

// Request is a parsed request. Path lies in the buffer it was parsed from.
type Request struct {
	Path   []byte
	Number uint32
}

// Response is a parsed response. Body lies in the buffer it was parsed from.
type Response struct {
	Status int
	Number uint32
	Body   []byte
}

var (
	errHead   = errors.New("head is longer than any of the laboratory's")
	errLine   = errors.New("no line of HTTP/1.1")
	errLength = errors.New("no usable Content-Length")
	errNumber = errors.New("no usable " + numberHeader)
)

// AppendRequest appends a GET of path, which begins with a slash.
func AppendRequest(b []byte, path []byte, number uint32) []byte {
	b = append(b, "GET "...)
	b = append(b, path...)
	b = append(b, " HTTP/1.1\r\nHost: chain\r\n"+numberHeader+": "...)
	b = appendDecimal(b, number)
	return append(b, "\r\n\r\n"...)
}

// AppendResponse appends an answer. Only 200 has a reason in words: status
// lines need none.
func AppendResponse(b []byte, status int, number uint32, body []byte) []byte {
	b = append(b, "HTTP/1.1 "...)
	b = appendDecimal(b, uint32(status))
	if status == 200 {
		b = append(b, " OK"...)
	} else {
		b = append(b, ' ')
	}
	b = append(b, "\r\n"+numberHeader+": "...)
	b = appendDecimal(b, number)
	b = append(b, "\r\nContent-Length: "...)
	b = appendDecimal(b, uint32(len(body)))
	b = append(b, "\r\n\r\n"...)
	return append(b, body...)
}

func appendDecimal(b []byte, n uint32) []byte {
	if n >= 10 {
		b = appendDecimal(b, n/10)
	}
	return append(b, byte('0'+n%10))
}

// ParseRequest reads the first request in b and returns how many bytes it
// took; 0 when b holds no whole request yet.
func ParseRequest(b []byte) (Request, int, error) {
	first, h, took, err := parseHead(b)
	if err != nil || took == 0 {
		return Request{}, 0, wrap("request", first, err)
	}
	path, ok := bytes.CutPrefix(first, []byte("GET "))
	path, ok2 := bytes.CutSuffix(path, []byte(" HTTP/1.1"))
	switch {
	case !ok || !ok2 || len(path) == 0 || path[0] != '/':
		return Request{}, 0, wrap("request", first, errLine)
	case h.length > 0:
		return Request{}, 0, wrap("request", first, errLength)
	case !h.hasNumber:
		return Request{}, 0, wrap("request", first, errNumber)
	}
	return Request{Path: path, Number: h.number}, took, nil
}

// ParseResponse reads the first response in b and returns how many bytes it
// took; 0 when b holds no whole response yet.
func ParseResponse(b []byte) (Response, int, error) {
	first, h, took, err := parseHead(b)
	if err != nil || took == 0 {
		return Response{}, 0, wrap("response", first, err)
	}
	status, ok := parseStatus(first)
	switch {
	case !ok:
		return Response{}, 0, wrap("response", first, errLine)
	case !h.hasLength:
		return Response{}, 0, wrap("response", first, errLength)
	case !h.hasNumber:
		return Response{}, 0, wrap("response", first, errNumber)
	case len(b) < took+h.length:
		return Response{}, 0, nil
	}
	return Response{Status: status, Number: h.number, Body: b[took : took+h.length]}, took + h.length, nil
}

func wrap(what string, first []byte, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("read %s %.80q: %w", what, first, err)
}

// parseStatus reads "HTTP/1.1 200", whatever follows.
func parseStatus(line []byte) (int, bool) {
	rest, ok := bytes.CutPrefix(line, []byte("HTTP/1.1 "))
	if !ok || len(rest) < 3 || (len(rest) > 3 && rest[3] != ' ') {
		return 0, false
	}
	status, ok := parseDecimal(rest[:3])
	return status, ok && status >= 100
}

// header is what of a message's head is of use.
type header struct {
	length    int
	number    uint32
	hasLength bool
	hasNumber bool
}

// parseHead reads a head up to and with its empty line.
func parseHead(b []byte) (first []byte, h header, took int, err error) {
	for line := range 64 {
		end := bytes.IndexByte(b[took:], '\n')
		if end < 0 {
			if len(b) > MaxHead {
				return first, h, 0, errHead
			}
			return first, h, 0, nil
		}
		text := bytes.TrimSuffix(b[took:took+end], []byte{'\r'})
		took += end + 1
		switch {
		case took > MaxHead:
			return first, h, 0, errHead
		case line == 0 && len(text) == 0:
			return first, h, 0, errLine
		case line == 0:
			first = text
		case len(text) == 0:
			return first, h, took, nil
		default:
			if err := h.add(text); err != nil {
				return first, h, 0, err
			}
		}
	}
	return first, h, 0, errHead
}

// add takes one header line.
func (h *header) add(line []byte) error {
	name, value, ok := bytes.Cut(line, []byte{':'})
	if !ok {
		return errLine
	}
	value = bytes.TrimSpace(value)
	switch {
	case equalFold(name, "Content-Length"):
		n, ok := parseDecimal(value)
		if !ok || n > MaxBody || h.hasLength {
			return errLength
		}
		h.length, h.hasLength = n, true
	case equalFold(name, numberHeader):
		n, ok := parseDecimal(value)
		if !ok || h.hasNumber {
			return errNumber
		}
		h.number, h.hasNumber = uint32(n), true
	case equalFold(name, "Transfer-Encoding"):
		return errLength
	}
	return nil
}

func equalFold(a []byte, b string) bool {
	return len(a) == len(b) && bytes.EqualFold(a, []byte(b))
}

// parseDecimal reads a number that fits 32 bits.
func parseDecimal(b []byte) (int, bool) {
	const most = 1<<32 - 1
	n := 0
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		if n = n*10 + int(c-'0'); n > most {
			return 0, false
		}
	}
	return n, len(b) > 0
}
