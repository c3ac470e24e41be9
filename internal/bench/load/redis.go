// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bytes"
	"fmt"
)

// resp is RESP2, the protocol of Redis. Its answers carry no number: that a
// value begins with its key tells an answer to another request.
//
//	*2 $3 GET $12 KEY       →  $100 \r\n <100 bytes> \r\n
//	*3 $3 SET $12 KEY $100 … →  +OK \r\n
type resp struct{ store }

func (r resp) ask(b []byte, a arrival, _ uint32) []byte {
	if a.kind == get {
		b = append(b, "*2\r\n$3\r\nGET\r\n"...)
		return r.appendBulkKey(b, a.key)
	}
	b = append(b, "*3\r\n$3\r\nSET\r\n"...)
	b = r.appendBulkKey(b, a.key)
	b = appendDecimal(append(b, '$'), len(r.value))
	b = r.appendValue(append(b, '\r', '\n'), a.key)
	return append(b, '\r', '\n')
}

func (r resp) appendBulkKey(b []byte, key uint32) []byte {
	b = appendDecimal(append(b, '$'), keyBytes)
	b = appendKey(append(b, '\r', '\n'), key)
	return append(b, '\r', '\n')
}

func (r resp) read(b []byte, a arrival, _ uint32) (ok bool, took int, err error) {
	end := bytes.IndexByte(b, '\n')
	if end < 0 {
		return false, 0, lineBound(b)
	}
	line := bytes.TrimSuffix(b[:end], []byte{'\r'})
	took = end + 1
	if len(line) == 0 {
		return false, 0, fmt.Errorf("read answer %q: no type", b[:took])
	}
	switch line[0] {
	case '+':
		return a.kind == set && string(line) == "+OK", took, nil
	case '-', ':':
		return false, took, nil // an error of the server's, or no answer to what was asked
	case '$':
		return r.readBulk(b, took, line, a)
	}
	return false, 0, fmt.Errorf("read answer %.80q: unknown type", line)
}

// readBulk takes a string whose length line has been read.
func (r resp) readBulk(b []byte, took int, line []byte, a arrival) (ok bool, end int, err error) {
	if string(line) == "$-1" {
		return false, took, nil // a miss
	}
	length, isNumber := parseDigits(line[1:])
	if !isNumber || length > maxValue {
		return false, 0, fmt.Errorf("read answer %.80q: no length of a value", line)
	}
	if len(b) < took+length+2 {
		return false, 0, nil
	}
	value := b[took : took+length]
	return a.kind == get && r.isValue(value, a.key), took + length + 2, nil
}
