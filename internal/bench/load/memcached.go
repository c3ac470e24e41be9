// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bytes"
	"fmt"
)

// meta is memcached's meta protocol: every request carries its number as the
// opaque token O, which the server echoes.
//
//	mg KEY v O0001          →  VA 100 O0001 \r\n <100 bytes> \r\n
//	ms KEY 100 O0001 … data →  HD O0001 \r\n
type meta struct{ store }

func (m meta) ask(b []byte, a arrival, number uint32) []byte {
	if a.kind == get {
		b = appendKey(append(b, "mg "...), a.key)
		b = appendDigits(append(b, " v O"...), number, 10)
		return append(b, '\r', '\n')
	}
	b = appendKey(append(b, "ms "...), a.key)
	b = appendDecimal(append(b, ' '), len(m.value))
	b = appendDigits(append(b, " O"...), number, 10)
	b = m.appendValue(append(b, '\r', '\n'), a.key)
	return append(b, '\r', '\n')
}

func (m meta) read(b []byte, a arrival, number uint32) (ok bool, took int, err error) {
	end := bytes.IndexByte(b, '\n')
	if end < 0 {
		return false, 0, lineBound(b)
	}
	line := bytes.TrimSuffix(b[:end], []byte{'\r'})
	took = end + 1
	token := bytes.LastIndexByte(line, 'O')
	if token < 3 || line[token-1] != ' ' {
		return false, 0, fmt.Errorf("read answer %q: no opaque number", line)
	}
	echoed, isNumber := parseDigits(line[token+1:])
	if !isNumber {
		return false, 0, fmt.Errorf("read answer %q: no opaque number", line)
	}
	ok = echoed == int(number)
	switch string(line[:2]) {
	case "VA":
		text, _, _ := bytes.Cut(line[3:], []byte{' '})
		length, isNumber := parseDigits(text)
		if !isNumber || length > maxValue {
			return false, 0, fmt.Errorf("read answer %q: no length of a value", line)
		}
		if len(b) < took+length+2 {
			return false, 0, nil
		}
		ok = ok && a.kind == get && m.isValue(b[took:took+length], a.key)
		took += length + 2
	case "HD":
		ok = ok && a.kind == set
	default:
		ok = false // a miss, or an error of the server's; the stream goes on
	}
	return ok, took, nil
}

// maxLine bounds an answer's line.
const maxLine = 2048

func lineBound(b []byte) error {
	if len(b) > maxLine {
		return fmt.Errorf("read answer %.80q: no end of its line", b)
	}
	return nil
}

// parseDigits reads a number of at most ten digits.
func parseDigits(b []byte) (int, bool) {
	n := 0
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, len(b) > 0 && len(b) <= 10
}
