// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/temper-sched/temper/internal/policy"
)

// eventServer keeps the counts of Events by their names.
type eventServer struct {
	t      *testing.T
	counts map[string]int32
	posts  int
	// lose makes it keep the first Event and lose the answer, busy the number of
	// tries that it refuses.
	lose bool
	busy int
}

func (s *eventServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := func(code int, text string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprint(w, text)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Error(err)
	}
	e := &corev1.Event{}
	if r.Method == http.MethodPost {
		e = s.decode(body)
		s.posts++
	} else if err := json.Unmarshal(body, e); err != nil {
		s.t.Error(err)
	} else {
		e.Name = filepath.Base(r.URL.Path)
	}
	_, known := s.counts[e.Name]
	switch {
	case s.busy > 0:
		s.busy--
		answer(http.StatusInternalServerError, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "InternalError", "code": 500}`)
		return
	case r.Method == http.MethodPost && known:
		answer(http.StatusConflict, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "AlreadyExists", "code": 409}`)
		return
	}
	s.counts[e.Name] = e.Count
	if s.lose {
		s.lose = false
		panic(http.ErrAbortHandler)
	}
	answer(http.StatusOK, `{"kind": "Event", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}}`)
}

// client is an agent's, of this server.
func (s *eventServer) client(t *testing.T) *Client {
	t.Helper()
	s.t, s.counts = t, map[string]int32{}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	config := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("clusters: [{name: a, cluster: {server: %q}}]\ncontexts: [{name: a, context: {cluster: a}}]\ncurrent-context: a\n", server.URL)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{Kubeconfig: config, NodeName: "n1", Thresholds: thresholds, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (s *eventServer) decode(body []byte) *corev1.Event {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		s.t.Error(err)
	}
	object, _, err := serializer.NewCodecFactory(scheme).UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		s.t.Error(err)
		return &corev1.Event{}
	}
	return object.(*corev1.Event)
}

// TestEventsOverABadServer: an Event that is tried again is counted once, also where
// the server took it and its answer was lost. Later ones are counted in it.
func TestEventsOverABadServer(t *testing.T) {
	for name, test := range map[string]struct {
		server eventServer
		failed []bool // of the tries
		posts  int
	}{
		"the answer is lost": {eventServer{lose: true}, []bool{true, false, false}, 2},
		"it is busy":         {eventServer{busy: 2}, []bool{true, true, false, false}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			s := test.server
			c := s.client(t)
			var failed []bool
			for range test.failed {
				failed = append(failed, c.Event(t.Context(), Event{Reason: EventEjected, Message: "m"}) != nil)
			}
			if !slices.Equal(failed, test.failed) || s.posts != test.posts {
				t.Errorf("failed %v, want %v; %d posts, want %d", failed, test.failed, s.posts, test.posts)
			}
			for event, count := range s.counts {
				if count != 2 || len(s.counts) != 1 {
					t.Errorf("%s was counted %d times, want 2, of %d", event, count, len(s.counts))
				}
			}
		})
	}
}

// TestEventsOfManyPods leave room for those of the node.
func TestEventsOfManyPods(t *testing.T) {
	r := newRecorder()
	accepted := 0
	for n := range 4 * eventBurst {
		if r.accepts(Event{Pod: &policy.Pod{UID: strconv.Itoa(n)}, Reason: EventCriticalOverCapacity}) {
			accepted++
		}
	}
	if accepted < eventBurst || accepted > eventBurst+1 {
		t.Errorf("%d Events of pods at once, want %d", accepted, eventBurst)
	}
	if !r.accepts(Event{Reason: EventEjected}) {
		t.Error("none is left for the node")
	}
}
