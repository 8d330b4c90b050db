package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"

	"github.com/recourse-dev/recourse/internal/archive"
	"github.com/recourse-dev/recourse/receipts"
)

// InvariantArchive is checked only if the audit is given the archive.
const InvariantArchive = "every archive file is there as its receipts say"

// Archived counts the archive files that receipts name.
type Archived struct {
	Files   int `json:"files"`   // files that receipts name
	Same    int `json:"same"`    // content matches the digest in the receipts
	Missing int `json:"missing"` // no such file in the archive
	Changed int `json:"changed"` // content differs from the digest in the receipts
	// Unreadable counts files that are there, and names that are not those of files of the archive.
	Unreadable int `json:"unreadable"`
}

// OpenArchive returns the archive in an existing directory, for reading.
func OpenArchive(path string) (archive.Store, error) {
	d, err := archive.DirAt(path)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// archiveCheck reads each archive file once per digest that receipts give for it. It keeps the results by
// the SHA-256 of name and digest.
type archiveCheck struct {
	store   archive.Store // nil: nothing is checked
	results map[[sha256.Size]byte]archiveFileResult
	summary Archived
}

// archiveFileResult is the result of checking a file.
type archiveFileResult struct {
	problem string // empty: none
	digest  string // actual digest, if it differs from the receipts
}

func newArchiveCheck(store archive.Store) *archiveCheck {
	return &archiveCheck{store: store, results: map[[sha256.Size]byte]archiveFileResult{}}
}

// check checks the files that the receipts of a case name. A file holds many letters, so each
// receipt that names it is a separate break.
func (c *archiveCheck) check(ctx context.Context, a *Report, at breakSubject, rs []receipts.Receipt) error {
	if c.store == nil {
		return nil
	}
	for _, r := range rs {
		if r.Subtype != receipts.Purged && r.Subtype != receipts.RetentionExpired {
			continue
		}
		p, err := r.Payload()
		if err != nil {
			continue // the audit of the chain and the fold report it
		}
		if p.Archive == "" {
			continue
		}
		key := sha256.Sum256([]byte(p.Archive + "\x00" + p.ArchiveDigest))
		file, known := c.results[key]
		if !known {
			if file, err = c.compare(ctx, p.Archive, p.ArchiveDigest); err != nil {
				return err
			}
			c.results[key] = file
		}
		if file.problem != "" {
			a.failDiffering(InvariantArchive, at.withRun(r.Run).withReceipt(r.Seq), file.digest, p.ArchiveDigest, "%s, with the letter of run %s", file.problem, r.Run)
		}
	}
	return nil
}

func (c *archiveCheck) compare(ctx context.Context, name, digest string) (file archiveFileResult, err error) {
	c.summary.Files++
	got, err := digestOfFile(ctx, c.store, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.summary.Missing++
		return archiveFileResult{problem: "archive file " + name + " is missing"}, nil
	case err != nil && ctx.Err() != nil:
		return archiveFileResult{}, ctx.Err()
	case err != nil:
		c.summary.Unreadable++
		return archiveFileResult{problem: "archive file " + name + " can't be read: " + err.Error()}, nil
	case got != digest:
		c.summary.Changed++
		return archiveFileResult{"archive file " + name + " is changed: its SHA-256 is " + got + ", the receipt says " + digest, got}, nil
	default:
		c.summary.Same++
	}
	return archiveFileResult{}, nil
}

func digestOfFile(ctx context.Context, store archive.Store, name string) (digest string, err error) {
	f, err := store.Open(ctx, name)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
