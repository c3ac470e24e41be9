// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// postgresql is Debian's PostgreSQL with pgbench.
type postgresql struct{}

// Where Debian puts it, and where it listens.
const (
	postgresDir  = "/usr/lib/postgresql/17/bin/"
	postgresHost = "127.0.0.1"
	postgresPort = "5432"
	postgresUser = "postgres"
)

// start makes a data directory, fills pgbench's tables and starts the server.
//
// Nothing is forced to a disk (fsync=off), and the directory is in memory in a
// guest: commits wait for no device, so that latency is CPU time, queues and the
// scheduler. A new segment of its log is not filled with zeros, for which all
// transactions would wait: a server that has run for a while has old segments to
// write over. The compiler of queries is off, all else is as by default.
func (p *postgresql) start(ctx context.Context, n *node, dir string) error {
	data := filepath.Join(dir, "data")
	primary := n.spec.Scenario.Primary
	if err := n.setUp(asNobody(exec.CommandContext(ctx, postgresDir+"initdb", "-D", data, "-U", postgresUser, "-A", "trust",
		"--locale=C", "--encoding=UTF8", "--no-sync", "--no-instructions", "--set=wal_init_zero=off"), dir)); err != nil {
		return err
	}
	fill := asNobody(exec.CommandContext(ctx, postgresDir+"postgres", "--single", "-D", data, "-F", postgresUser), dir)
	fill.Stdin = strings.NewReader(pgbenchTables(int(primary.Params["branches"]), int(primary.Params["accounts"])))
	if err := n.setUp(fill); err != nil {
		return err
	}
	cmd := asNobody(exec.CommandContext(ctx, postgresDir+"postgres", "-D", data,
		"-c", "listen_addresses="+postgresHost, "-c", "port="+postgresPort, "-c", "unix_socket_directories=",
		"-c", "fsync=off", "-c", "full_page_writes=off", "-c", "jit=off", "-c", "shared_buffers=64MB", "-c", "huge_pages=off"), dir)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) } // its processes too, at once
	return n.startDatabase(ctx, cmd, "ready to accept connections")
}

// readUntil reads lines until one has word in it, and lets the rest run off.
// What was said before comes back.
func readUntil(in io.Reader, word string) (string, error) {
	var said strings.Builder
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if strings.Contains(lines.Text(), word) {
			go io.Copy(io.Discard, in) //nolint:errcheck // ends with the process
			return said.String(), nil
		}
		fmt.Fprintln(&said, lines.Text())
	}
	text := strings.TrimSpace(said.String())
	return text[max(0, len(text)-1000):], errors.Join(errors.New("its output ended"), lines.Err())
}

// pgbenchTables are the statements that make pgbench's own tables with fewer
// accounts in a branch than its 100,000, one statement a line.
func pgbenchTables(branches, accounts int) string {
	return strings.Join([]string{
		"create table pgbench_branches (bid int primary key, bbalance int, filler char(88))",
		"create table pgbench_tellers (tid int primary key, bid int, tbalance int, filler char(84))",
		"create table pgbench_accounts (aid int primary key, bid int, abalance int, filler char(84))",
		"create table pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22))",
		fmt.Sprintf("insert into pgbench_branches select b, 0, '' from generate_series(1, %d) b", branches),
		fmt.Sprintf("insert into pgbench_tellers select t, (t - 1) / 10 + 1, 0, '' from generate_series(1, %d) t", 10*branches),
		fmt.Sprintf("insert into pgbench_accounts select a, (a - 1) / %d + 1, 0, '' from generate_series(1, %d) a", accounts, accounts*branches),
		"vacuum analyze",
		"",
	}, ";\n")
}

// pgbenchScript is pgbench's TPC-B-like transaction, on accounts rows a branch.
func pgbenchScript(accounts int) string {
	return fmt.Sprintf(`\set aid random(1, %d * :scale)
\set bid random(1, 1 * :scale)
\set tid random(1, 10 * :scale)
\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP);
END;
`, accounts)
}

// scriptFile and noteName are what lies in a client's directory.
const (
	scriptFile = "script"
	noteName   = "notes"
)

func (p *postgresql) client(ctx context.Context, c clientSpec) *exec.Cmd {
	script := filepath.Join(c.dir, scriptFile)
	args := []string{
		"-h", postgresHost, "-p", postgresPort, "-U", postgresUser, "-n", "-f", script, "-s", strconv.Itoa(int(c.params["branches"])),
		"-c", strconv.Itoa(c.clients), "-j", "1", "-T", strconv.Itoa(c.seconds), "--random-seed=" + strconv.FormatUint(c.seed, 10),
		"--log", "--log-prefix=" + filepath.Join(c.dir, noteName),
	}
	if c.rate > 0 {
		args = append(args, "-R", strconv.FormatFloat(c.rate, 'f', -1, 64))
	}
	cmd := exec.CommandContext(ctx, postgresDir+"pgbench", append(args, postgresUser)...)
	cmd.Dir = c.dir
	if err := os.WriteFile(script, []byte(pgbenchScript(int(c.params["accounts"]))), 0o644); err != nil {
		cmd.Err = fmt.Errorf("write pgbench's script: %w", err)
	}
	return cmd
}

func (p *postgresql) transactions(dir string) ([]transaction, error) {
	return readTransactions(dir, "pgbench's logs", parsePgbenchLog)
}

// parsePgbenchLog reads "client transaction time script epoch µs [lag]" lines.
// With a rate, time counts from when the transaction was due, lag included.
func parsePgbenchLog(text string) ([]transaction, error) {
	var out []transaction
	number := 0
	for line := range strings.Lines(text) {
		number++
		f := strings.Fields(line)
		if len(f) != 6 && len(f) != 7 {
			return nil, fmt.Errorf("parse pgbench's log, line %d: %d fields", number, len(f))
		}
		var v [7]int64
		for i, field := range f {
			var err error
			if v[i], err = strconv.ParseInt(field, 10, 64); err != nil || v[i] < 0 {
				return nil, fmt.Errorf("parse pgbench's log, line %d: %q is no count", number, field)
			}
		}
		const most = int64(time.Hour / time.Microsecond)
		if v[2] > most || v[6] > v[2] || v[4] > int64(1<<62/time.Second) || v[5] >= 1e6 {
			return nil, fmt.Errorf("parse pgbench's log, line %d: %d µs with a lag of %d ended at %d.%06d", number, v[2], v[6], v[4], v[5])
		}
		end := time.Duration(v[4])*time.Second + time.Duration(v[5])*time.Microsecond
		out = append(out, transaction{
			due: end - time.Duration(v[2])*time.Microsecond, end: end, lag: time.Duration(v[6]) * time.Microsecond, client: int(v[0]),
		})
	}
	return out, nil
}
