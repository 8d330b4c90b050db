package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
)

// Dir is a Store in a directory. Only the owner of the process may read it.
type Dir struct{ root string }

// unfinishedPrefix marks files that were not renamed: a crash leaves them, nobody reads them,
// and they may be removed by hand.
const unfinishedPrefix = ".unfinished-"

// OpenDir returns the Dir of a directory. It makes a missing one, and returns an error if the
// directory is not writable.
func OpenDir(root string) (*Dir, error) {
	if root == "" {
		return nil, errors.New("archive: no directory is given")
	}
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	d := &Dir{root: root}
	if err := d.makeFolder(root); err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	probe, err := os.CreateTemp(root, unfinishedPrefix)
	if err != nil {
		return nil, fmt.Errorf("archive: %s can't be written: %w", root, err)
	}
	return d, errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// DirAt returns the Dir of an existing directory. It writes nothing.
func DirAt(root string) (*Dir, error) {
	info, err := os.Stat(root)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is no directory", root)
	}
	if err == nil {
		root, err = filepath.Abs(root)
	}
	if err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	return &Dir{root: root}, nil
}

// Put implements Store.
func (d *Dir) Put(ctx context.Context, name string, content []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	path, err := d.path(name)
	if err != nil {
		return err
	}
	folder := filepath.Dir(path)
	if err := d.makeFolder(folder); err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	if err := d.write(folder, path, content); err != nil {
		return fmt.Errorf("archive: write %s: %w", name, err)
	}
	return nil
}

func (d *Dir) write(folder, path string, content []byte) (err error) {
	f, err := os.CreateTemp(folder, unfinishedPrefix)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	for ; ; folder = filepath.Dir(folder) {
		// The folders above, too: another process may have made them a moment ago.
		if err := syncFolder(folder); err != nil || folder == d.root {
			return err
		}
	}
}

// makeFolder makes a folder and its missing parents, and syncs them.
func (d *Dir) makeFolder(folder string) error {
	if _, err := os.Stat(folder); err == nil {
		return nil
	}
	above := filepath.Dir(folder)
	if above == folder {
		return fmt.Errorf("%s does not exist", folder)
	}
	if err := d.makeFolder(above); err != nil {
		return err
	}
	if err := os.Mkdir(folder, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncFolder(above)
}

func syncFolder(folder string) error {
	f, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Remove implements Remover. After a crash the file may exist again.
func (d *Dir) Remove(_ context.Context, name string) error {
	path, err := d.path(name)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("archive: remove %s: %w", name, err)
	}
	return nil
}

// Open implements Store.
func (d *Dir) Open(_ context.Context, name string) (io.ReadCloser, error) {
	path, err := d.path(name)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	return f, nil
}

// Names implements Store.
func (d *Dir) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	stop := errors.New("no more")
	return func(yield func(string, error) bool) {
		err := filepath.WalkDir(d.root, func(path string, e fs.DirEntry, err error) error {
			if err := errors.Join(err, ctx.Err()); err != nil {
				return err
			}
			relative, err := filepath.Rel(d.root, path)
			if err != nil {
				return err
			}
			name := filepath.ToSlash(relative)
			switch {
			case e.IsDir() && name != "." && !strings.HasPrefix(name+"/", prefix) && !strings.HasPrefix(prefix, name+"/"):
				return fs.SkipDir
			case e.IsDir() || strings.HasPrefix(e.Name(), unfinishedPrefix) || !strings.HasPrefix(name, prefix):
				return nil
			case !yield(name, nil):
				return stop
			}
			return nil
		})
		if err != nil && !errors.Is(err, stop) {
			yield("", fmt.Errorf("archive: list %q: %w", prefix, err))
		}
	}
}

// path returns the path of a name. A name can't lead out of the directory.
func (d *Dir) path(name string) (string, error) {
	local := filepath.FromSlash(name)
	if !filepath.IsLocal(local) || strings.HasPrefix(filepath.Base(local), unfinishedPrefix) {
		return "", fmt.Errorf("archive: %q is not a valid name", name)
	}
	return filepath.Join(d.root, local), nil
}
