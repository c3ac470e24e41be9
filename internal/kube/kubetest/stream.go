// SPDX-License-Identifier: Apache-2.0

package kubetest

import (
	"encoding/json"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

// eventStream writes a watch's events as API servers do to a client that takes
// protobuf, which costs it a fraction of what JSON does: events in frames, and
// objects in them with an envelope each.
type eventStream struct {
	frames  io.Writer
	objects *protobuf.Serializer
}

const streamType = runtime.ContentTypeProtobuf + ";stream=watch"

func newEventStream(w io.Writer) eventStream {
	scheme := runtime.NewScheme()
	_ = corev1.AddToScheme(scheme) // into a new one
	return eventStream{protobuf.LengthDelimitedFramer.NewFrameWriter(w), protobuf.NewSerializer(scheme, scheme)}
}

// write panics over what no API server could send: a test made it.
func (s eventStream) write(kind string, o Object) error {
	typed := typedOf(o)
	raw, err := runtime.Encode(s.objects, typed)
	if err != nil {
		panic(fmt.Sprintf("encode %v: %v", o, err))
	}
	event := metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: raw}}
	frame, err := event.Marshal()
	if err != nil {
		panic(fmt.Sprintf("encode event of %v: %v", o, err))
	}
	_, err = s.frames.Write(frame)
	return err
}

func typedOf(o Object) runtime.Object {
	typed := map[any]runtime.Object{"Pod": &corev1.Pod{}, "Node": &corev1.Node{}}[o["kind"]]
	text, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(text, &typed)
	}
	if err != nil || typed == nil {
		panic(fmt.Sprintf("%v is neither pod nor node: %v", o, err))
	}
	return typed
}
