// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/temper-sched/temper/internal/bench"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"temper-lab": main,
	})
}

func TestScripts(t *testing.T) {
	text, err := os.ReadFile("testdata/ladder.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{Dir: "testdata/script", RequireExplicitExec: true, Setup: func(e *testscript.Env) error {
		// $NODE is a program that needs no shared library, and is never run.
		var program bytes.Buffer
		if err := binary.Write(&program, binary.LittleEndian, elf.Header64{
			Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
			Type:  uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT), Ehsize: 64,
		}); err != nil {
			return err
		}
		node := filepath.Join(e.WorkDir, "node")
		e.Setenv("NODE", node)
		if err := os.WriteFile(node, program.Bytes(), 0o755); err != nil {
			return err
		}
		// $RECORDS holds a campaign's directory.
		records := filepath.Join(e.WorkDir, "campaigns")
		e.Setenv("RECORDS", records)
		dir := filepath.Join(records, "ladder")
		return errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, bench.RecordFile), text, 0o644))
	}})
}

func TestExitCodes(t *testing.T) {
	for line, want := range map[string]int{
		"":                  exitOK,
		"report --help":     exitOK,
		"report nowhere":    exitError,
		"report":            exitUsage,
		"demo --arms cfs":   exitUsage,
		"demo --no-such":    exitUsage,
		"dmeo":              exitUsage,
		"node run":          exitUsage,
		"report testdata":   exitError,
		"demo --topology x": exitUsage,
		"run":               exitUsage,
		"run nothing":       exitUsage,
		"run burst --on x":  exitUsage,
		// A variable that is not set is not everything.
		"run burst --arms=":        exitUsage,
		"run burst --points=":      exitUsage,
		"run burst --density=":     exitUsage,
		"run burst --topology=":    exitUsage,
		"run burst --seeds 0":      exitUsage,
		"run burst --jobs -3":      exitUsage,
		"run burst --jobs 0":       exitUsage,
		"campaign nowhere --only=": exitUsage,
		"rerun nowhere --only=":    exitUsage,
		"rerun nowhere --jobs 0":   exitUsage,
		"demo --arms=":             exitUsage,
		"verify":                   exitUsage,
		"verify nowhere":           exitError,
		"rerun nowhere":            exitError,
		"ls a b":                   exitUsage,
		"kernels":                  exitOK,
		"campaign nowhere":         exitError,
		"campaign ../../bench/campaign.yaml --list none": exitUsage,
		"campaign ../../bench/campaign.yaml --only none": exitUsage,
		"bogus --dry-run":     exitUsage,
		"--dry-run":           exitUsage,
		"help":                exitOK,
		"help run":            exitOK,
		"help bogus":          exitUsage,
		"run --help":          exitOK,
		"compare a b -o yaml": exitUsage,
		"demo --window 2h":    exitUsage,
	} {
		var out, err strings.Builder
		if got := execute(t.Context(), strings.Fields(line), strings.NewReader(""), &out, &err); got != want {
			t.Errorf("temper-lab %s: exit code %d, want %d; %s", line, got, want, err.String())
		}
	}
}

// An argument that is empty is not this directory, and a text that JSON cannot hold is no
// record's.
func TestWordsThatSayNothing(t *testing.T) {
	text, err := os.ReadFile("testdata/ladder.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	if err := os.WriteFile(bench.RecordFile, text, 0o644); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"an argument is empty":      {"report", ""},
		`--out "a\xff": want UTF-8`: {"run", "burst", "--dry-run", "--out", "a\xff"},
	} {
		var out, stderr strings.Builder
		if got := execute(t.Context(), args, nil, &out, &stderr); got != exitUsage || !strings.Contains(stderr.String(), want) {
			t.Errorf("temper-lab %q: exit code %d, want %d and %q: %s", args, got, exitUsage, want, stderr.String())
		}
	}
	if left, err := os.ReadDir("."); err != nil || len(left) != 1 {
		t.Errorf("beside the records: %v, %v", left, err)
	}
}

// Whoever reads a report while it is made anew reads the old one to its end.
func TestReportsAreReplacedAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), summaryFile)
	put := func(text string) {
		if err := writeFile(path, func(w io.Writer) error { _, err := io.WriteString(w, text); return err }); err != nil {
			t.Fatal(err)
		}
	}
	put("the old one")
	reader, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	put("new")
	if text, err := io.ReadAll(reader); err != nil || string(text) != "the old one" {
		t.Errorf("read %q, %v", text, err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("beside the report: %v, %v", left, err)
	}
}

// Who edits a line is told the same by everything that reads records.
func TestEditedRecordsAreUnsound(t *testing.T) {
	text, err := os.ReadFile("testdata/ladder.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	dir := filepath.Join(root, "edited")
	edited := strings.Replace(string(text), `"seed":1`, `"seed":2`, 1)
	if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, bench.RecordFile), []byte(edited), 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"verify", dir}, {"report", dir}, {"compare", dir, dir}, {"compare", "eevdf", "temper", "--in", dir}, {"targets", "--records", root},
	} {
		var out, stderr strings.Builder
		if got := execute(t.Context(), args, nil, &out, &stderr); got != exitUnsound {
			t.Errorf("temper-lab %s: exit code %d, want %d: %s", args[0], got, exitUnsound, stderr.String())
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("beside the records: %v, %v", left, err)
	}
}

// A directory that was gone on with after the guests had changed is refused by whatever
// makes figures, not by verify alone.
func TestWindowsOfTwoMachinesAreUnsound(t *testing.T) {
	file, err := os.Open("testdata/ladder.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	records, err := bench.ReadRecords(file)
	if err != nil {
		t.Fatal(err)
	}
	records[1].Machine.Cmdline += " nohz=off"
	root := t.TempDir()
	dir := filepath.Join(root, "fix")
	var lines bytes.Buffer
	for i := range records {
		err = errors.Join(err, bench.WriteRecord(&lines, &records[i]))
	}
	if err := errors.Join(err, os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, bench.RecordFile), lines.Bytes(), 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"verify", dir}, {"report", dir}, {"compare", dir, dir}, {"targets", "--records", root}} {
		var out, stderr strings.Builder
		if got := execute(t.Context(), args, nil, &out, &stderr); got != exitUnsound || !strings.Contains(out.String()+stderr.String(), `has "nohz=off"`) {
			t.Errorf("temper-lab %s: exit code %d, want %d: %s", args[0], got, exitUnsound, stderr.String())
		}
	}
}

// The records are of a real run; one window was made void by hand.
func TestReportOfRealRecords(t *testing.T) {
	records, err := os.ReadFile("testdata/ladder.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, bench.RecordFile), records, 0o644); err != nil {
		t.Fatal(err)
	}
	var out, stderr strings.Builder
	if got := execute(t.Context(), []string{"report", dir}, nil, &out, &stderr); got != exitVoid {
		t.Fatalf("exit code %d, want %d: %s", got, exitVoid, stderr.String())
	}
	for _, want := range []string{"eevdf ", "void", "p99 alone", "summary: " + filepath.Join(dir, summaryFile), "page: " + filepath.Join(dir, reportFile)} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, out.String())
		}
	}
	page, err := os.ReadFile(filepath.Join(dir, reportFile))
	if err != nil || !strings.Contains(string(page), "<!DOCTYPE html>") {
		t.Errorf("page of %d bytes, %v", len(page), err)
	}
}
