// SPDX-License-Identifier: Apache-2.0

package kubetest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
)

// patchNode merges a patch into a node: mappings by key, conditions by type.
func (a *Server) patchNode(w http.ResponseWriter, r *http.Request) {
	a.count("patch node")
	var patch Object
	if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
		refuse(w, http.StatusBadRequest, "BadRequest", err.Error())
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	path := "nodes/" + r.PathValue("name")
	o, ok := a.objects[path]
	if !ok {
		refuse(w, http.StatusNotFound, "NotFound", "no "+path)
		return
	}
	o = clone(o)
	merge(o, patch)
	answer(w, http.StatusOK, a.putLocked(path, o))
}

func merge(into, patch Object) {
	for key, value := range patch {
		switch v := value.(type) {
		case nil:
			delete(into, key)
		case Object:
			merge(Inner(into, key), v)
		case []any:
			into[key] = mergeByType(into[key], v)
		default:
			into[key] = v
		}
	}
}

func mergeByType(old any, patch []any) []any {
	out, _ := old.([]any)
	for _, item := range patch {
		own, _ := item.(Object)
		at := slices.IndexFunc(out, func(o any) bool {
			other, _ := o.(Object)
			return other["type"] == own["type"]
		})
		if at < 0 {
			out = append(out, item)
			continue
		}
		next := clone(out[at].(Object))
		merge(next, own)
		out[at] = next
	}
	return out
}

func (a *Server) postEvent(w http.ResponseWriter, r *http.Request) {
	a.count("post event")
	body, err := io.ReadAll(r.Body)
	var e Event
	if err == nil {
		e, err = decodeEvent(body)
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, "BadRequest", err.Error())
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	a.events = append(a.events, e)
	answer(w, http.StatusCreated, Object{
		"apiVersion": "v1", "kind": "Event", "reason": e.Reason, "involvedObject": Object{},
		"metadata": Object{"name": e.own, "namespace": r.PathValue("namespace"), "resourceVersion": strconv.Itoa(a.version)},
	})
}

func (a *Server) patchEvent(w http.ResponseWriter, r *http.Request) {
	a.count("patch event")
	var patch struct {
		Count   int
		Message string
	}
	err := json.NewDecoder(r.Body).Decode(&patch)
	a.mu.Lock()
	defer a.mu.Unlock()
	at := slices.IndexFunc(a.events, func(e Event) bool { return e.own == r.PathValue("name") })
	if err != nil || at < 0 {
		refuse(w, http.StatusNotFound, "NotFound", "no such event")
		return
	}
	a.events[at].Count, a.events[at].Message = patch.Count, patch.Message
	answer(w, http.StatusOK, Object{"apiVersion": "v1", "kind": "Event", "metadata": Object{"name": r.PathValue("name")}, "involvedObject": Object{}})
}

// decodeEvent reads an Event in protocol buffers, in which clients send: the
// numbers are those of k8s.io/api/core/v1/generated.proto.
func decodeEvent(body []byte) (Event, error) {
	raw, ok := bytes.CutPrefix(body, []byte("k8s\x00"))
	if !ok {
		return Event{}, errors.New("not in protocol buffers")
	}
	envelope, err := decodeFields(raw)
	if err != nil {
		return Event{}, err
	}
	event, err := decodeFields(envelope.bytes(2))
	if err != nil {
		return Event{}, err
	}
	meta, errMeta := decodeFields(event.bytes(1))
	about, errAbout := decodeFields(event.bytes(2))
	return Event{
		own:       string(meta.bytes(1)),
		Kind:      string(about.bytes(1)),
		Namespace: string(about.bytes(2)),
		Name:      string(about.bytes(3)),
		Reason:    string(event.bytes(3)),
		Message:   string(event.bytes(4)),
		Count:     int(event.numbers[8]),
		Type:      string(event.bytes(9)),
	}, errors.Join(errMeta, errAbout)
}

// fields are those of one message, of repeated ones the last.
type fields struct {
	texts   map[uint64][]byte
	numbers map[uint64]uint64
}

func (f fields) bytes(n uint64) []byte { return f.texts[n] }

var errTorn = errors.New("message ends inside a field")

func decodeFields(b []byte) (fields, error) {
	f := fields{map[uint64][]byte{}, map[uint64]uint64{}}
	for len(b) > 0 {
		tag, n := binary.Uvarint(b)
		if n <= 0 {
			return f, errTorn
		}
		value, m := binary.Uvarint(b[n:])
		if m <= 0 {
			return f, errTorn
		}
		b = b[n+m:]
		switch tag & 7 {
		case 0:
			f.numbers[tag>>3] = value
		case 2:
			if value > uint64(len(b)) {
				return f, errTorn
			}
			f.texts[tag>>3], b = b[:value], b[value:]
		default:
			return f, errors.New("field of a kind that Events do not have")
		}
	}
	return f, nil
}
