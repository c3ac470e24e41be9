// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bytes"
	"fmt"
)

// The client speaks memcached's meta protocol: every request carries its
// number as the opaque token O, which the server echoes, so an answer that
// belongs to another request cannot pass unseen.
//
//	mg KEY v O0001          →  VA 100 O0001 \r\n <100 bytes> \r\n
//	ms KEY 100 O0001 … data →  HD O0001 \r\n

const (
	keyDigits = 8
	maxValue  = 1 << 20 // memcached's own limit
)

// appendKey writes "key-00000042".
func appendKey(b []byte, key uint32) []byte {
	b = append(b, "key-"...)
	return appendDigits(b, key, keyDigits)
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

func appendGet(b []byte, key, number uint32) []byte {
	b = append(b, "mg "...)
	b = appendKey(b, key)
	b = append(b, " v O"...)
	b = appendDigits(b, number, 10)
	return append(b, '\r', '\n')
}

func appendSet(b []byte, key, number uint32, value []byte) []byte {
	b = append(b, "ms "...)
	b = appendKey(b, key)
	b = append(b, ' ')
	b = appendDecimal(b, len(value))
	b = append(b, " O"...)
	b = appendDigits(b, number, 10)
	b = append(b, '\r', '\n')
	b = append(b, value...)
	return append(b, '\r', '\n')
}

func appendDecimal(b []byte, n int) []byte {
	if n >= 10 {
		b = appendDecimal(b, n/10)
	}
	return append(b, byte('0'+n%10))
}

// answer is one parsed response.
type answer struct {
	number uint32
	ok     bool // a value of the right length, or a stored set
}

// parse reads the first answer in b and returns how many bytes it took; 0 when
// b holds no whole answer yet. valueBytes is the length every value has. A
// line that is no answer of the meta protocol is an error: the stream is lost.
func parse(b []byte, valueBytes int) (answer, int, error) {
	end := bytes.IndexByte(b, '\n')
	if end < 0 {
		return answer{}, 0, nil
	}
	line := bytes.TrimSuffix(b[:end], []byte{'\r'})
	if len(line) < 2 {
		return answer{}, 0, fmt.Errorf("read answer %q: too short", line)
	}
	var ans answer
	if at := bytes.LastIndexByte(line, 'O'); at > 0 && line[at-1] == ' ' {
		for _, c := range line[at+1:] {
			if c < '0' || c > '9' {
				return answer{}, 0, fmt.Errorf("read answer %q: no opaque number", line)
			}
			ans.number = ans.number*10 + uint32(c-'0')
		}
	} else {
		return answer{}, 0, fmt.Errorf("read answer %q: no opaque number", line)
	}
	took := end + 1
	switch {
	case line[0] == 'V' && line[1] == 'A':
		length := 0
		for _, c := range line[3:] {
			if c < '0' || c > '9' {
				break
			}
			length = length*10 + int(c-'0')
			if length > maxValue {
				return answer{}, 0, fmt.Errorf("read answer %q: longer than any value", line)
			}
		}
		took += length + 2
		if len(b) < took {
			return answer{}, 0, nil
		}
		ans.ok = length == valueBytes
	case line[0] == 'H' && line[1] == 'D':
		ans.ok = true
	}
	return ans, took, nil
}
