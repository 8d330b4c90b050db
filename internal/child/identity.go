//go:build unix

package child

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// Identity is another user to run as. A nil Identity is the current user.
type Identity struct {
	Name     string
	UID, GID uint32
}

// Unprivileged returns the first of the named users that exists, else nobody, to run as instead of root. It returns
// nil if the current user is not root.
func Unprivileged(names ...string) (*Identity, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range append(names, "nobody") {
		u, err := user.Lookup(name)
		if errors.As(err, new(user.UnknownUserError)) {
			continue
		}
		if err != nil {
			return nil, err
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		return &Identity{Name: name, UID: uint32(uid), GID: uint32(gid)}, nil
	}
	return nil, fmt.Errorf("running as root, and none of the users %v and nobody exists to run a server as", names)
}

func (id *Identity) credential() *syscall.Credential {
	if id == nil {
		return nil
	}
	return &syscall.Credential{Uid: id.UID, Gid: id.GID}
}

// MakeDir makes a directory that only the identity may use, if it does not exist.
func (id *Identity) MakeDir(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if id == nil {
		return nil
	}
	return os.Chown(path, int(id.UID), int(id.GID))
}

// CanReach returns an error that names the first directory in path that the identity may not enter.
func (id *Identity) CanReach(path string) error {
	if id == nil {
		return nil
	}
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	for dir := path; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if !id.canEnter(info) {
			return fmt.Errorf("user %s may not enter %s: choose another directory, or chmod o+x %s", id.Name, dir, dir)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

func (id *Identity) canEnter(info os.FileInfo) bool {
	mode := info.Mode().Perm()
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		if st.Uid == id.UID {
			return mode&0o100 != 0
		}
		if st.Gid == id.GID {
			return mode&0o010 != 0
		}
	}
	return mode&0o001 != 0
}

// Password returns a new password with at least 128 random bits. It needs no quoting in a URL, a file or a shell.
func Password() string { return rand.Text() }

// WriteSecret writes a file that only the identity and root may read. It replaces an existing file atomically.
func (id *Identity) WriteSecret(path, content string) (err error) {
	unfinished := path + ".new"
	if err := os.Remove(unfinished); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(unfinished, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	if err == nil && id != nil {
		err = f.Chown(int(id.UID), int(id.GID))
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(unfinished, path)
}
