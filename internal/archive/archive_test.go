package archive_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/archive"
)

type letter struct {
	ID   string `json:"id"`
	Text string `json:"text"`
	Rank int64  `json:"rank,omitempty"`
}

func open(t *testing.T) (*archive.Dir, string) {
	t.Helper()
	root := filepath.Join(t.TempDir(), "a", "b")
	d, err := archive.OpenDir(root)
	if err != nil {
		t.Fatal(err)
	}
	return d, root
}

func put(t *testing.T, s archive.Store, name string, letters ...letter) {
	t.Helper()
	content, err := archive.Encode(letters)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Put(context.Background(), name, content); err != nil {
		t.Fatal(err)
	}
}

func read(s archive.Store, prefix string) (ids []string, err error) {
	for l, err := range archive.Read(context.Background(), s, prefix, func(l letter) string { return l.ID }, func(l letter) int64 { return l.Rank }) {
		if err != nil {
			return ids, err
		}
		ids = append(ids, l.ID+l.Text)
	}
	return ids, nil
}

func TestWhatWasWrittenTwiceIsReadOnce(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	put(t, s, "acme/settlement/1.jsonl.gz", letter{ID: "a", Text: "1"}, letter{ID: "b", Text: "1"})
	put(t, s, "acme/settlement/2.jsonl.gz", letter{ID: "b", Text: "2"}, letter{ID: "c", Text: "<2>"})
	put(t, s, "acme2/settlement/1.jsonl.gz", letter{ID: "d", Text: "1"})
	for prefix, want := range map[string]string{"": "a1 b2 c<2> d1", "acme/": "a1 b2 c<2>", "acme/settlement/2": "b2 c<2>", "none/": ""} {
		if got, err := read(s, prefix); err != nil || strings.Join(got, " ") != want {
			t.Errorf("%q: %v, %v; want %s", prefix, got, err, want)
		}
	}
}

// The record that is written last is not always the newest: a slow process may write an older
// reading after a newer one. Among equal ranks the last counts, also within a file.
func TestOfRecordsWithTheSameIDTheHighestRankIsRead(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	put(t, s, "acme/1.jsonl.gz", letter{"a", "1", 4}, letter{"b", "1", 2}, letter{"c", "1", 9})
	put(t, s, "acme/2.jsonl.gz", letter{"b", "2", 3}, letter{"b", "3", 3}, letter{"a", "2", 3})
	put(t, s, "acme/3.jsonl.gz", letter{"c", "3", 9}, letter{"b", "4", 1})
	if got, err := read(s, ""); err != nil || strings.Join(got, " ") != "a1 b3 c3" {
		t.Errorf("%v, %v", got, err)
	}
}

// A crash before the rename leaves a file that readers ignore.
func TestAnUnfinishedFileIsNotRead(t *testing.T) {
	t.Parallel()
	s, root := open(t)
	put(t, s, "acme/1.jsonl.gz", letter{ID: "a", Text: ""})
	if err := os.WriteFile(filepath.Join(root, "acme", ".unfinished-77"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := read(s, ""); err != nil || !slices.Equal(got, []string{"a"}) {
		t.Errorf("%v, %v", got, err)
	}
	var names []string
	for name, err := range s.Names(context.Background(), "acme/") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	if !slices.Equal(names, []string{"acme/1.jsonl.gz"}) {
		t.Errorf("names %v", names)
	}
}

func TestADamagedFileIsAnErrorAndNotAnEnd(t *testing.T) {
	t.Parallel()
	s, root := open(t)
	put(t, s, "acme/1.jsonl.gz", letter{ID: "a", Text: ""}, letter{ID: "b", Text: strings.Repeat("x", 10000)})
	path := filepath.Join(root, "acme", "1.jsonl.gz")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(whole)
	flipped[len(flipped)-6] ^= 1 // a byte of the checksum
	for name, content := range map[string][]byte{"cut": whole[:len(whole)-4], "flipped": flipped, "no gzip": []byte("{}"), "empty": {}} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := read(s, ""); err == nil {
			t.Errorf("%s: read as %v", name, got)
		}
	}
}

func TestNamesStayInTheirPlace(t *testing.T) {
	t.Parallel()
	s, root := open(t)
	for _, name := range []string{"", "..", "../x", "/etc/x", "a/../../x", "acme/.unfinished-1"} {
		if err := s.Put(context.Background(), name, []byte("x")); err == nil {
			t.Errorf("%q was written", name)
		}
	}
	hostile := []string{"..", ".", "", "a/b", "a%2Fb", "A", "a", "ä", "a b", "\x00", strings.Repeat("Ä", 64), strings.Repeat("Ä", 63) + "Ö", strings.Repeat("a", 201), strings.Repeat("a", 202)}
	seen := map[string]string{}
	for _, text := range hostile {
		segment := archive.Segment(text)
		if other, twice := seen[segment]; twice {
			t.Errorf("%q and %q are both %q", text, other, segment)
		}
		seen[segment] = text
		if strings.ContainsAny(segment, "./\\ \x00") {
			t.Errorf("%q gives %q", text, segment)
		}
		put(t, s, "x"+segment+"/1", letter{ID: text, Text: ""})
	}
	if _, err := os.Stat(filepath.Join(root, "xa", "1")); err != nil {
		t.Error(err)
	}
	if _, err := s.Open(context.Background(), "none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func TestNothingIsLeftOfAPutThatFails(t *testing.T) {
	t.Parallel()
	s, root := open(t)
	if err := os.MkdirAll(filepath.Join(root, "taken"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(context.Background(), "taken", []byte("x")); err == nil { // a folder has this name
		t.Error("a folder was replaced")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Put(ctx, "late", []byte("x")); err == nil {
		t.Error("written after the context ended")
	}
	left, err := os.ReadDir(root)
	if err != nil || len(left) != 1 || left[0].Name() != "taken" {
		t.Errorf("%v, %v", left, err)
	}
	if _, err := archive.OpenDir(""); err == nil {
		t.Error("a store without a directory was opened")
	}
	file := filepath.Join(root, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := archive.OpenDir(filepath.Join(file, "x")); err == nil {
		t.Error("a file was opened as a directory")
	}
}

func TestFilesAreForTheirOwnerAlone(t *testing.T) {
	t.Parallel()
	s, root := open(t)
	put(t, s, "acme/1", letter{ID: "a", Text: ""})
	for path, want := range map[string]fs.FileMode{"acme": 0o700, "acme/1": 0o600} {
		info, err := os.Stat(filepath.Join(root, path))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
}

// vanishingStore lists a file in a full listing that is removed before it can be
// opened.
type vanishingStore struct{ *archive.Dir }

func (h vanishingStore) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if prefix == "" && !yield("acme/0.jsonl.gz", nil) {
			return
		}
		h.Dir.Names(ctx, prefix)(yield)
	}
}

func TestWhatWasPutForNothingIsRemoved(t *testing.T) {
	t.Parallel()
	s, dir := open(t)
	put(t, s, "acme/0.jsonl.gz", letter{ID: "a", Text: "1"})
	put(t, s, "acme/1.jsonl.gz", letter{ID: "b", Text: "1"})
	for range 2 { // a second removal changes nothing
		if err := archive.Remover(s).Remove(context.Background(), "acme/0.jsonl.gz"); err != nil {
			t.Error(err)
		}
	}
	if got, err := read(s, ""); err != nil || strings.Join(got, " ") != "b1" {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := read(vanishingStore{s}, ""); err != nil || strings.Join(got, " ") != "b1" {
		t.Errorf("%v, %v", got, err)
	}
	if err := os.Symlink("away", filepath.Join(dir, "acme", "2.jsonl.gz")); err != nil {
		t.Fatal(err)
	}
	if got, err := read(s, ""); err == nil {
		t.Errorf("a file that can't be opened was skipped: %v", got)
	}
	if err := s.Remove(context.Background(), "../x"); err == nil {
		t.Error("a name led out of the directory")
	}
}
