package postadjudication

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

// InvariantArchive is checked when an audit is given the archive.
const InvariantArchive = "every archive file is there as its receipts say"

// ArchiveAudit is what a check of the archive files that receipts name found.
type ArchiveAudit struct {
	Files         int `json:"files"`            // that receipts name
	Same          int `json:"same"`             // of these: as the receipts say, to the byte
	Missing       int `json:"missing"`          // of these
	Changed       int `json:"changed"`          // of these
	WithoutDigest int `json:"without_a_digest"` // of these: there, and their receipts, of an older program, do not say what was in them
}

// ArchiveAt is an Archive in a directory that is there, to be read.
func ArchiveAt(path string) (Archive, error) {
	d, err := archive.DirAt(path)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// archiveCheck reads each archive file that receipts name, once for each digest that they
// say of it. It keeps the names.
type archiveCheck struct {
	store Archive // nil: nothing is checked
	seen  map[[sha256.Size]byte]bool
	found ArchiveAudit
}

func newArchiveCheck(store Archive) *archiveCheck {
	return &archiveCheck{store: store, seen: map[[sha256.Size]byte]bool{}}
}

// note takes in the receipts of a case.
func (c *archiveCheck) note(ctx context.Context, a *Audit, at site, rs []receipts.Receipt) error {
	if c.store == nil {
		return nil
	}
	for _, r := range rs {
		if r.Subtype != receipts.Purged && r.Subtype != receipts.RetentionExpired {
			continue
		}
		p, err := r.Payload()
		if err != nil {
			continue // the chain and the fold say so
		}
		key := sha256.Sum256([]byte(p.Archive + "\x00" + p.ArchiveDigest))
		if p.Archive == "" || c.seen[key] {
			continue
		}
		c.seen[key] = true
		if err := c.compare(ctx, a, at.of(r.Run).at(r.Seq), p.Archive, p.ArchiveDigest); err != nil {
			return err
		}
	}
	return nil
}

func (c *archiveCheck) compare(ctx context.Context, a *Audit, at site, name, digest string) error {
	c.found.Files++
	got, err := digestOfFile(ctx, c.store, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.found.Missing++
		a.fail(InvariantArchive, at, "archive file %s is missing", name)
	case err != nil:
		return err
	case digest == "":
		c.found.WithoutDigest++
	case got != digest:
		c.found.Changed++
		a.fail(InvariantArchive, at, "archive file %s is changed: its SHA-256 is %s, receipt %s says %s", name, got, at.receipt, digest)
	default:
		c.found.Same++
	}
	return nil
}

func digestOfFile(ctx context.Context, store Archive, name string) (digest string, err error) {
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
