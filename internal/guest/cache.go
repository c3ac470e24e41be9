// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// cacheDir is where everything a guest is made of is kept.
func cacheDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find cache directory: %w", err)
	}
	dir := filepath.Join(base, "temper")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("create cache directory: %w", err)
	}
	return dir, nil
}

// lockPoll is how often a held lock is tried again.
const lockPoll = 100 * time.Millisecond

// lock takes the cache's lock, so that of several first runs one downloads and
// the others find the result.
func lock(ctx context.Context, dir, name string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, name+".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open cache lock: %w", err)
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock cache: %w", err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("lock cache: %w", ctx.Err())
		case <-time.After(lockPoll):
		}
	}
}

// cached returns the value that an earlier build left in name, or builds it.
// build fills an empty directory; it becomes dir/name only when complete.
func cached[T any](ctx context.Context, name string, log *slog.Logger,
	build func(a *archive, dir string) (T, error),
) (value T, dir string, err error) {
	root, err := cacheDir()
	if err != nil {
		return value, "", err
	}
	dir = filepath.Join(root, name)
	if ok, err := readJSON(filepath.Join(dir, "about.json"), &value); ok || err != nil {
		return value, dir, err
	}
	unlock, err := lock(ctx, root, "build")
	if err != nil {
		return value, "", err
	}
	defer unlock()
	if ok, err := readJSON(filepath.Join(dir, "about.json"), &value); ok || err != nil {
		return value, dir, err
	}
	a, err := newArchive(root, log)
	if err != nil {
		return value, "", err
	}
	tmp := dir + ".partial"
	if value, err = buildFresh(ctx, a, tmp, build); err != nil {
		return value, "", err
	}
	if err := writeJSON(filepath.Join(tmp, "about.json"), value); err != nil {
		return value, "", err
	}
	if err := os.RemoveAll(dir); err != nil {
		return value, "", fmt.Errorf("replace %s: %w", dir, err)
	}
	if err := os.Rename(tmp, dir); err != nil {
		return value, "", fmt.Errorf("keep %s: %w", dir, err)
	}
	return value, dir, nil
}

// buildFresh runs build in an empty dir. Lists older than the mirror name
// packages that are gone, so after a failure it updates them and tries again.
func buildFresh[T any](ctx context.Context, a *archive, dir string,
	build func(a *archive, dir string) (T, error),
) (value T, err error) {
	if err := a.fresh(ctx); err != nil {
		return value, err
	}
	for {
		if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
			return value, fmt.Errorf("create %s: %w", dir, err)
		}
		value, err = build(a, dir)
		if err == nil || a.updated || ctx.Err() != nil {
			return value, err
		}
		a.log.InfoContext(ctx, "resolving again from new package lists", "err", err)
		if uerr := a.update(ctx); uerr != nil {
			return value, errors.Join(err, uerr)
		}
	}
}

func readJSON(path string, v any) (bool, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", path, err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return false, fmt.Errorf("parse %s: %w (delete it to build it again)", path, err)
	}
	return true, nil
}

func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	if err := os.WriteFile(path, append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// digest is a short content address.
func digest(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d\n", len(p))
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// tempDir is a directory that remove deletes.
func tempDir(purpose string) (dir string, remove func(), err error) {
	dir, err = os.MkdirTemp("", "temper-"+purpose+"-")
	if err != nil {
		return "", nil, fmt.Errorf("create temporary directory: %w", err)
	}
	return dir, func() { os.RemoveAll(dir) }, nil
}
