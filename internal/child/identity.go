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

// Identity is another user to run as. A nil Identity is the user we are.
type Identity struct {
	Name     string
	UID, GID uint32
}

// Unprivileged returns the first of the named users that exists, to run as in place of root, else nobody. It is nil
// when we are not root.
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

// MakeDir makes a directory that only the identity may use, if it isn't there.
func (id *Identity) MakeDir(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if id == nil {
		return nil
	}
	return os.Chown(path, int(id.UID), int(id.GID))
}

// CanReach returns an error naming the first directory on the way to path that the identity may not pass.
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
			return fmt.Errorf("user %s may not enter %s: choose another place, or chmod o+x %s", id.Name, dir, dir)
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

// Password returns a new password of at least 128 random bits. A URL, a file and a shell take it without quoting.
func Password() string { return rand.Text() }

// WriteSecret writes a file that only the identity and root may read. A file that is there is replaced; one that is
// being written is never at that path.
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
