// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// mariadb is Debian's MariaDB with sysbench.
type mariadb struct{}

// Where Debian puts it, and where it listens.
const (
	mariadbPath  = "/usr/sbin/mariadbd"
	mariadbSQL   = "/usr/share/mariadb/"
	mariadbHost  = "127.0.0.1"
	mariadbPort  = "3306"
	sysbenchPath = "/usr/bin/sysbench"
	sysbenchTest = "/usr/share/sysbench/oltp_read_write.lua"
)

// sysbenchScript is sysbench's own oltp_read_write, whose every event it notes.
//
//go:embed sysbench.lua
var sysbenchScript []byte

// start makes a data directory, starts the server and fills sysbench's tables.
// As with PostgreSQL nothing is forced to a disk and the directory is in memory.
func (m *mariadb) start(ctx context.Context, n *node, dir string) error {
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return fmt.Errorf("create data directory: %w", err)
	}
	if err := os.Chown(data, unprivileged, unprivileged); err != nil {
		return fmt.Errorf("create data directory: %w", err)
	}
	server := func(args ...string) *exec.Cmd {
		return asNobody(exec.CommandContext(ctx, mariadbPath, append([]string{
			"--no-defaults", "--datadir=" + data, "--tmpdir=" + dir, "--innodb-buffer-pool-size=64M", "--innodb-log-file-size=32M",
			"--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0", "--skip-log-bin",
		}, args...)...), dir)
	}
	tables, err := systemTables()
	if err != nil {
		return err
	}
	bootstrap := server("--bootstrap", "--log-warnings=0")
	bootstrap.Stdin = strings.NewReader(tables)
	if err := n.setUp(bootstrap); err != nil {
		return err
	}
	// Nobody else is on the node's loopback: no users, no passwords.
	cmd := server("--bind-address="+mariadbHost, "--port="+mariadbPort, "--socket="+filepath.Join(dir, "socket"), "--skip-grant-tables", "--skip-name-resolve")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGKILL) }
	if err := n.startDatabase(ctx, cmd, "ready for connections"); err != nil {
		return err
	}
	p := n.spec.Scenario.Primary.Params
	return n.setUp(exec.CommandContext(ctx, sysbenchPath, append([]string{sysbenchTest}, append(sysbenchFlags(p), "prepare")...)...))
}

// systemTables are the statements by which Debian's own script makes the
// server's tables, and the database of the test.
func systemTables() (string, error) {
	var b strings.Builder
	b.WriteString("create database mysql;\nuse mysql;\n")
	b.WriteString("set @skip_auth_anonymous=null;\nset @auth_root_socket=null;\n")
	for _, file := range []string{"mariadb_system_tables.sql", "mariadb_performance_tables.sql", "mariadb_system_tables_data.sql"} {
		text, err := os.ReadFile(mariadbSQL + file)
		if err != nil {
			return "", fmt.Errorf("read MariaDB's system tables: %w", err)
		}
		b.Write(text)
		b.WriteByte('\n')
	}
	b.WriteString("create database sbtest;\n")
	return b.String(), nil
}

// sysbenchFlags say where the server is and how large the test is. Rows are
// drawn evenly: by sysbench's default every fourth transaction on tables of this
// size is rolled back for a deadlock.
func sysbenchFlags(params map[string]float64) []string {
	return []string{
		"--db-driver=mysql", "--mysql-host=" + mariadbHost, "--mysql-port=" + mariadbPort, "--mysql-user=root", "--mysql-db=sbtest",
		"--tables=" + strconv.Itoa(int(params["tables"])), "--table-size=" + strconv.Itoa(int(params["rows"])), "--rand-type=uniform",
	}
}

func (m *mariadb) client(ctx context.Context, c clientSpec) *exec.Cmd {
	script := filepath.Join(c.dir, scriptFile+".lua")
	args := append([]string{script}, sysbenchFlags(c.params)...)
	args = append(args, "--threads="+strconv.Itoa(c.clients), "--time="+strconv.Itoa(c.seconds), "--events=0",
		"--rand-seed="+strconv.FormatUint(max(c.seed%(1<<31), 1), 10), "run")
	cmd := exec.CommandContext(ctx, sysbenchPath, args...)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), "NOTES="+filepath.Join(c.dir, noteName), "TEST="+sysbenchTest,
		"RATE="+strconv.FormatFloat(c.rate/float64(c.clients), 'f', -1, 64), "SEED="+strconv.FormatUint(c.seed%(1<<31), 10))
	if err := os.WriteFile(script, sysbenchScript, 0o644); err != nil {
		cmd.Err = fmt.Errorf("write sysbench's script: %w", err)
	}
	return cmd
}

func (m *mariadb) transactions(dir string) ([]transaction, error) {
	return readTransactions(dir, "sysbench's notes", parseSysbenchNotes)
}

// parseSysbenchNotes reads "thread due begun ended" lines, moments in
// nanoseconds. What ends a file without a newline was cut off.
func parseSysbenchNotes(text string) ([]transaction, error) {
	var out []transaction
	number := 0
	for line := range strings.Lines(text) {
		number++
		f := strings.Fields(line)
		if len(f) != 4 || !strings.HasSuffix(line, "\n") {
			return nil, fmt.Errorf("parse sysbench's notes, line %d: %d fields", number, len(f))
		}
		var v [4]int64
		for i, field := range f {
			var err error
			if v[i], err = strconv.ParseInt(field, 10, 64); err != nil || v[i] < 0 {
				return nil, fmt.Errorf("parse sysbench's notes, line %d: %q is no count", number, field)
			}
		}
		if v[1] > v[2] || v[2] > v[3] {
			return nil, fmt.Errorf("parse sysbench's notes, line %d: due at %d, begun at %d, ended at %d", number, v[1], v[2], v[3])
		}
		out = append(out, transaction{due: time.Duration(v[1]), end: time.Duration(v[3]), lag: time.Duration(v[2] - v[1]), client: int(v[0])})
	}
	return out, nil
}
