//go:build unix

package child

import (
	"crypto/rand"
	"errors"
	"os"
)

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
