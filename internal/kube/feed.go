// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	firstDelay = 250 * time.Millisecond
	maxDelay   = 15 * time.Second
	// watchFor is how long the server keeps a watch open, and up to twice that:
	// nodes that started together do not come back together.
	watchFor = 5 * time.Minute
	// curt is a watch that was over before it was worth anything.
	curt = time.Second
)

// source is one collection of the API server.
type source interface {
	list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error)
	watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// sink is told what a collection holds, by one goroutine.
type sink interface {
	replace(all []runtime.Object)
	apply(event watch.Event)
	connected(is bool)
}

// feed keeps a sink at what a source says. Unlike client-go's reflector it says
// at once when the connection is lost, which is what the agent reports.
type feed struct {
	name    string
	source  source
	sink    sink
	log     *slog.Logger
	version string // of the last that was heard; "0" for any
	delay   time.Duration
}

func newFeed(name string, from source, to sink, log *slog.Logger) *feed {
	return &feed{name: name, source: from, sink: to, log: log, version: "0", delay: firstDelay}
}

// run follows the source until ctx ends, whatever becomes of the server.
func (f *feed) run(ctx context.Context) {
	for {
		err := f.session(ctx)
		if ctx.Err() != nil {
			return
		}
		f.sink.connected(false)
		wait := f.delay/2 + rand.N(f.delay)
		f.log.WarnContext(ctx, "watch broken", "of", f.name, "again_in", wait.Round(time.Millisecond), "err", err)
		f.delay = min(2*f.delay, maxDelay)
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// session lists everything and watches from there until that fails. A watch
// that the server ends in good order goes on where it ended.
func (f *feed) session(ctx context.Context) error {
	if err := f.list(ctx); err != nil {
		return fmt.Errorf("list: %w", err)
	}
	for ctx.Err() == nil {
		began := time.Now()
		if err := f.follow(ctx); err != nil {
			return fmt.Errorf("watch: %w", err)
		}
		if time.Since(began) < curt {
			return errors.New("watch: ended as soon as it began")
		}
	}
	return ctx.Err()
}

// list asks for nothing older than what is known, which the server answers
// from memory. One that does not know that version is asked for any; one that does
// not answer is no reason to hear again what was so before.
func (f *feed) list(ctx context.Context) error {
	list, err := f.source.list(ctx, metav1.ListOptions{ResourceVersion: f.version})
	if err != nil {
		if apierrors.IsTimeout(err) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) { // it has waited for that version, or has it no more
			f.version = "0"
		}
		return err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return fmt.Errorf("read list: %w", err)
	}
	head, err := meta.ListAccessor(list)
	if err != nil {
		return fmt.Errorf("read list: %w", err)
	}
	f.version = head.GetResourceVersion()
	f.sink.replace(items)
	return nil
}

func (f *feed) follow(ctx context.Context) error {
	seconds := int64(watchFor/time.Second) + rand.Int64N(int64(watchFor/time.Second))
	// The server should end it; one that hangs does not.
	ctx, cancel := context.WithTimeout(ctx, time.Duration(seconds)*time.Second+30*time.Second)
	defer cancel()
	w, err := f.source.watch(ctx, metav1.ListOptions{ResourceVersion: f.version, AllowWatchBookmarks: true, TimeoutSeconds: &seconds})
	if err != nil {
		return err
	}
	defer w.Stop()
	f.sink.connected(true)
	began := time.Now()
	defer func() {
		if time.Since(began) >= curt {
			f.delay = firstDelay
		}
	}()
	for event := range w.ResultChan() {
		if event.Type == watch.Error {
			return apierrors.FromObject(event.Object)
		}
		object, err := meta.Accessor(event.Object)
		if err != nil {
			return fmt.Errorf("read event: %w", err)
		}
		f.version = object.GetResourceVersion()
		if event.Type != watch.Bookmark {
			f.sink.apply(event)
		}
	}
	return nil
}
