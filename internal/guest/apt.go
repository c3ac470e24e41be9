// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// suites are those a guest's parts may come from. Each is a row of its own in
// the sources, so that one that a mirror dropped does not take the rest along.
var suites = []string{
	"bookworm", "bookworm-backports", "trixie", "trixie-backports", "forky", "sid", "experimental",
}

// hostKeyring is where Debian and its derivatives install the archive's keys.
const hostKeyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// listsAge is how old lists may be when something new is resolved from them.
const listsAge = 24 * time.Hour

// archive is a private apt state: its own sources, lists and downloads.
type archive struct {
	dir    string // below the cache
	mirror string
	log    *slog.Logger
	idx    map[string]index // by suite, parsed on first use
	// updated is set once this process has fetched the lists.
	updated bool
}

// debianMirror matches a Debian archive in apt's sources, old format or new.
var debianMirror = regexp.MustCompile(`(?m)^(?:deb |URIs:)[^#\n]*?(https?://\S+/debian)/?(?:\s|$)`)

// mirror is where packages come from: TEMPER_MIRROR, or what this host uses.
func mirror(etc fs.FS) (string, error) {
	if m := os.Getenv("TEMPER_MIRROR"); m != "" {
		return m, nil
	}
	for _, pattern := range []string{"apt/sources.list.d/*.sources", "apt/sources.list.d/*.list", "apt/sources.list"} {
		files, err := fs.Glob(etc, pattern)
		if err != nil {
			return "", fmt.Errorf("find Debian mirror: %w", err)
		}
		for _, file := range files {
			text, err := fs.ReadFile(etc, file)
			if err != nil {
				continue // another file may do
			}
			if found := debianMirror.FindSubmatch(text); found != nil {
				return string(found[1]), nil
			}
		}
	}
	return "", errors.New("find Debian mirror: none in /etc/apt; set TEMPER_MIRROR to the address of one")
}

// newArchive prepares the apt state below cacheDir without using the network.
func newArchive(cacheDir string, log *slog.Logger) (*archive, error) {
	from, err := mirror(os.DirFS("/etc"))
	if err != nil {
		return nil, err
	}
	a := &archive{dir: filepath.Join(cacheDir, "apt"), mirror: from, log: log, idx: map[string]index{}}
	for _, d := range []string{"lists/partial", "cache/archives/partial", "debs"} {
		if err := os.MkdirAll(filepath.Join(a.dir, d), 0o755); err != nil {
			return nil, fmt.Errorf("create apt state %s: %w", a.dir, err)
		}
	}
	if err := os.WriteFile(filepath.Join(a.dir, "status"), nil, 0o644); err != nil {
		return nil, fmt.Errorf("create apt state %s: %w", a.dir, err)
	}
	conf := fmt.Sprintf(`Dir::State "%[1]s";
Dir::State::status "%[1]s/status";
Dir::State::lists "%[1]s/lists";
Dir::Cache "%[1]s/cache";
Dir::Etc::SourceList "%[1]s/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear APT::Architectures;
#clear Acquire::IndexTargets;
Acquire::IndexTargets::deb::Packages { MetaKey "$(COMPONENT)/binary-$(ARCHITECTURE)/Packages"; ShortDescription "Packages"; Description "$(RELEASE)/$(COMPONENT) $(ARCHITECTURE) Packages"; };
Acquire::Languages "none";
Acquire::GzipIndexes "false";
Acquire::Retries "3";
APT::Architecture "amd64";
APT::Sandbox::User "root";
`, a.dir)
	if err := os.WriteFile(filepath.Join(a.dir, "apt.conf"), []byte(conf), 0o644); err != nil {
		return nil, fmt.Errorf("create apt state %s: %w", a.dir, err)
	}
	return a, nil
}

// aptGet runs apt-get on the private state, in dir.
func (a *archive) aptGet(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-q", "-c", filepath.Join(a.dir, "apt.conf")}, args...)...)
	cmd.Dir = dir
	// A caller's APT_CONFIG could point back at the host's state.
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "APT_CONFIG=") })
	cmd.Env = append(env, "LC_ALL=C")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run apt-get %s: %w: %s", strings.Join(args, " "), err, aptErrors(out.Bytes()))
	}
	return nil
}

// aptErrors keeps the lines of apt's output that say what went wrong.
func aptErrors(out []byte) string {
	var keep []string
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "E:") || strings.HasPrefix(line, "Err:") || strings.HasPrefix(line, "W: GPG") {
			keep = append(keep, strings.TrimSpace(line))
		}
	}
	return strings.Join(keep, "; ")
}

// writeSources points the state at names, signed by keyring.
func (a *archive) writeSources(names []string, keyring string) error {
	var b strings.Builder
	for _, s := range names {
		fmt.Fprintf(&b, "deb [arch=amd64 signed-by=%s] %s %s main\n", keyring, a.mirror, s)
	}
	if err := os.WriteFile(filepath.Join(a.dir, "sources.list"), []byte(b.String()), 0o644); err != nil {
		return fmt.Errorf("write apt sources: %w", err)
	}
	return nil
}

// update fetches the lists of every suite. Where the host's keyring is too old
// to know a newer suite's key, the keyring package of a suite that it can
// verify carries that key.
func (a *archive) update(ctx context.Context) error {
	if _, err := os.Stat(hostKeyring); err != nil {
		return fmt.Errorf("find Debian's archive keys: %w (install the package debian-archive-keyring)", err)
	}
	a.log.InfoContext(ctx, "updating package lists", "mirror", a.mirror, "suites", len(suites))
	if err := a.writeSources(suites, hostKeyring); err != nil {
		return err
	}
	clear(a.idx)
	a.updated = true
	err := a.aptGet(ctx, a.dir, "update", "--error-on=any")
	if err == nil {
		return nil
	}
	a.log.InfoContext(ctx, "fetching a newer archive keyring", "err", err)
	if kerr := a.updateWithNewerKeyring(ctx); kerr != nil {
		return fmt.Errorf("update package lists: %w; with a newer keyring: %w", err, kerr)
	}
	return nil
}

func (a *archive) updateWithNewerKeyring(ctx context.Context) error {
	// Without --error-on=any this succeeds with the lists that verified.
	if err := a.aptGet(ctx, a.dir, "update"); err != nil {
		return err
	}
	p, err := a.newest("debian-archive-keyring", suites...)
	if err != nil {
		return err
	}
	deb, err := a.fetch(ctx, p)
	if err != nil {
		return err
	}
	root := filepath.Join(a.dir, "keyring")
	if err := extract(ctx, deb[0], root); err != nil {
		return err
	}
	keyring := filepath.Join(root, hostKeyring)
	if _, err := os.Stat(keyring); err != nil {
		keyring = strings.TrimSuffix(keyring, ".gpg") + ".pgp"
	}
	if err := a.writeSources(suites, keyring); err != nil {
		return err
	}
	clear(a.idx)
	// A suite that a mirror no longer has is no reason to stop: what needs it
	// names it when it is missing.
	return a.aptGet(ctx, a.dir, "update")
}

// fresh makes sure lists exist and are not too old to resolve new things from.
func (a *archive) fresh(ctx context.Context) error {
	st, err := os.Stat(filepath.Join(a.dir, "updated"))
	if err == nil && time.Since(st.ModTime()) < listsAge {
		return nil
	}
	if uerr := a.update(ctx); uerr != nil {
		if err == nil {
			a.log.WarnContext(ctx, "using older package lists", "err", uerr)
			return nil
		}
		return uerr
	}
	if err := os.WriteFile(filepath.Join(a.dir, "updated"), nil, 0o644); err != nil {
		return fmt.Errorf("mark package lists: %w", err)
	}
	return nil
}

// fetch downloads packages, verified against the signed lists, and returns
// their paths.
func (a *archive) fetch(ctx context.Context, pkgs ...*pkg) ([]string, error) {
	debs := filepath.Join(a.dir, "debs")
	var paths, wanted []string
	var bytes int64
	for _, p := range pkgs {
		path := filepath.Join(debs, p.debName())
		paths = append(paths, path)
		if st, err := os.Stat(path); err != nil || st.Size() != p.size {
			wanted = append(wanted, p.name+"="+p.version)
			bytes += p.size
		}
	}
	if len(wanted) == 0 {
		return paths, nil
	}
	a.log.InfoContext(ctx, "downloading packages", "first", wanted[0], "packages", len(wanted), "kib", bytes>>10)
	// apt chooses the files' names; a directory per download tells them apart.
	tmp, err := os.MkdirTemp(debs, "get-")
	if err != nil {
		return nil, fmt.Errorf("download packages: %w", err)
	}
	defer os.RemoveAll(tmp)
	if err := a.aptGet(ctx, tmp, append([]string{"download"}, wanted...)...); err != nil {
		return nil, fmt.Errorf("download packages: %w", err)
	}
	got, err := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if err != nil || len(got) != len(wanted) {
		return nil, fmt.Errorf("download packages: wanted %d, apt left %d", len(wanted), len(got))
	}
	for _, f := range got {
		if err := os.Rename(f, filepath.Join(debs, debName(f))); err != nil {
			return nil, fmt.Errorf("keep package %s: %w", filepath.Base(f), err)
		}
	}
	return paths, nil
}

// extract unpacks a package's files below root.
func extract(ctx context.Context, deb, root string) error {
	if err := os.MkdirAll(root, 0o755); err != nil {
		return fmt.Errorf("extract %s: %w", filepath.Base(deb), err)
	}
	out, err := exec.CommandContext(ctx, "dpkg-deb", "-x", deb, root).CombinedOutput()
	if err != nil {
		return fmt.Errorf("extract %s: %w: %s", filepath.Base(deb), err, bytes.TrimSpace(out))
	}
	return nil
}

// load returns the parsed list of a suite; an absent one is empty.
func (a *archive) load(suite string) (index, error) {
	if x, ok := a.idx[suite]; ok {
		return x, nil
	}
	// Lists are named after their address: host_path_dists_SUITE_main_….
	paths, err := filepath.Glob(filepath.Join(a.dir, "lists", "*_dists_"+suite+"_main_binary-amd64_Packages"))
	if err != nil {
		return nil, fmt.Errorf("find package list of %s: %w", suite, err)
	}
	x := index{}
	for _, p := range paths {
		f, err := os.Open(p)
		if err != nil {
			return nil, fmt.Errorf("open package list: %w", err)
		}
		err = x.read(bufio.NewReaderSize(f, 1<<20), suite)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("read package list %s: %w", filepath.Base(p), err)
		}
	}
	a.idx[suite] = x
	return x, nil
}

// newest returns the package called name of the last of the suites that has it.
func (a *archive) newest(name string, from ...string) (*pkg, error) {
	for _, suite := range slices.Backward(from) {
		x, err := a.load(suite)
		if err != nil {
			return nil, err
		}
		if p := x[name].newest(); p != nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("find package %s: not in %s", name, strings.Join(from, ", "))
}
