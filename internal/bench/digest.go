// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// digested are the members of a record that virtual time determines, in the
// order in which the digest takes them. Who ran it when, on which host and in
// which order is not among them: another run must give the same.
var digested = []string{"scenario", "arm", "seed", "build", "machine", "window"}

// Digest is the SHA-256 of what virtual time determines in a record, given as
// its line. It is made of the line's own bytes, so that a later program which
// knows more fields finds the same for an old line.
func Digest(line []byte) (string, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(line, &members); err != nil {
		return "", fmt.Errorf("digest record: %w", err)
	}
	var text bytes.Buffer
	for _, name := range digested {
		member, ok := members[name]
		if !ok {
			return "", fmt.Errorf("digest record: no %s", name)
		}
		text.WriteString(name)
		if err := json.Compact(&text, member); err != nil {
			return "", fmt.Errorf("digest record: %s: %w", name, err)
		}
		text.WriteByte('\n')
	}
	return checksum(text.Bytes()), nil
}
