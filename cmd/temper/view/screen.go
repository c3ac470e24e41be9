// SPDX-License-Identifier: Apache-2.0

package view

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Source is where readings come from.
type Source interface {
	Read(ctx context.Context) (Reading, error)
	// Complete adds to a view what the readings do not tell.
	Complete(v *View) error
}

// Follow shows one interval after the other, or only the first, until ctx ends.
// Readings of the same moment are one: an agent answers from what it read last.
func Follow(ctx context.Context, from Source, to Screen, interval time.Duration, once bool) (err error) {
	defer func() { err = errors.Join(err, to.Close()) }()
	before, err := from.Read(ctx)
	if err != nil {
		return err
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		after, err := from.Read(ctx)
		if err != nil {
			return err
		}
		v := Compare(before, after)
		if err := from.Complete(&v); err != nil {
			return err
		}
		if v.Interval == 0 {
			continue
		}
		if err := to.Show(v); err != nil {
			return fmt.Errorf("show counters: %w", err)
		}
		if once {
			return nil
		}
		before = after
	}
}

// Screen is where views go, one after the other.
type Screen interface {
	Show(v View) error
	Close() error
}

// ScreenOn returns the screen that suits the output: a terminal is redrawn.
func ScreenOn(out io.Writer, asJSON, once bool) Screen {
	switch file, isFile := out.(*os.File); {
	case asJSON && once:
		return indented{out}
	case asJSON:
		return jsonLines{json.NewEncoder(out)}
	case isFile && !once && isTerminal(file):
		return &terminal{file: file}
	}
	return plain{out}
}

type indented struct{ w io.Writer }

func (s indented) Show(v View) error {
	enc := json.NewEncoder(s.w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
func (s indented) Close() error { return nil }

type jsonLines struct{ enc *json.Encoder }

func (s jsonLines) Show(v View) error { return s.enc.Encode(v) }
func (s jsonLines) Close() error      { return nil }

// plain is for files and pipes: readings below each other.
type plain struct{ w io.Writer }

const plainWidth = 132

func (s plain) Show(v View) error {
	_, err := fmt.Fprintf(s.w, "%s\n\n", strings.Join(v.lines(plainWidth), "\n"))
	return err
}
func (s plain) Close() error { return nil }

// terminal redraws in place, on the alternate screen: what was there before
// comes back at the end.
type terminal struct {
	file *os.File
	open bool
}

const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	toTop       = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
)

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

func (s *terminal) Show(v View) error {
	width, height := 80, 24
	if size, err := unix.IoctlGetWinsize(int(s.file.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 && size.Row > 0 {
		width, height = int(size.Col), int(size.Row)
	}
	lines := v.lines(width)
	if len(lines) > height-1 {
		lines = append(lines[:height-2], fmt.Sprintf("… %d more lines, a taller window shows them", len(lines)-height+2))
	}
	var b strings.Builder
	if !s.open {
		b.WriteString(enterScreen)
		s.open = true
	}
	b.WriteString(toTop)
	for _, line := range lines {
		b.WriteString(line + clearLine + "\n")
	}
	b.WriteString(clearBelow)
	_, err := io.WriteString(s.file, b.String())
	return err
}

func (s *terminal) Close() error {
	if !s.open {
		return nil
	}
	_, err := io.WriteString(s.file, leaveScreen)
	return err
}
