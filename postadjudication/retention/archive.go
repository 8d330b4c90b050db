package retention

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/archive"
	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/receipts"
)

// Archive stores the letters that retention and purges remove: small files, written once. A
// directory or an object store can implement it.
type Archive = archive.Store

// Remover is an Archive that can also remove a file, as a directory can. Without it,
// files of failed tries stay in the archive.
type Remover = archive.Remover

// OpenDir returns an Archive in a directory. It creates the directory if missing.
func OpenDir(path string) (Archive, error) {
	d, err := archive.OpenDir(path)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// ArchivedLetter is a dead letter as it was when it was removed. Its receipts stay in the
// journal. Receipts and Link identify the last of them, so that archive and journal can be
// compared.
type ArchivedLetter struct {
	ArchivedAt   time.Time                    `json:"archived_at"`
	Run          background.RunID             `json:"run_id"`
	Case         background.CaseID            `json:"case_id"`
	Receipts     int64                        `json:"receipts"` // number of the case's receipts before the one of the removal
	Link         string                       `json:"link"`     // of the last of them
	Tenant       string                       `json:"tenant"`
	Family       string                       `json:"family"`
	Queue        string                       `json:"queue"`
	Target       string                       `json:"target"`
	RetryKey     string                       `json:"retry_key"`
	OperationKey string                       `json:"operation_key,omitempty"`
	Transaction  string                       `json:"transaction_receipt_id,omitempty"`
	Submission   string                       `json:"submission_receipt_id,omitempty"`
	Escrow       string                       `json:"escrow_reference,omitempty"`
	Currency     string                       `json:"currency,omitempty"`
	Held         int64                        `json:"held,omitempty"` // amount the escrow holds, in minor units
	Settlement   *receipts.SettlementSnapshot `json:"settlement,omitempty"`
	Policy       string                       `json:"policy"`
	Parent       background.RunID             `json:"parent_run_id,omitzero"`
	Attempts     int                          `json:"attempts"`
	DeadAt       time.Time                    `json:"dead_lettered_at"`
	ReasonCode   string                       `json:"reason_code"`
	Class        background.Class             `json:"outcome_class"`
	Error        *background.Failure          `json:"error,omitempty"`
	MarkReason   string                       `json:"mark_reason,omitempty"`
	Request      []byte                       `json:"request"` // input of the executor or handler
}

// Schedule reads how long a tenant's dead letters are kept, and those that were archived.
type Schedule struct {
	s      *Keeper
	tenant string
}

// As returns the reader of a tenant.
func (k *Keeper) As(tenant string) Schedule { return Schedule{k, tenant} }

// Archived streams the archived letters of a family, each once, in order of the day of their
// removal. A process that dies while it removes a letter can leave the letter in
// several files. Archived then returns the copy with most receipts, which is the one that was
// removed. A letter that was forked or held at the moment of its removal may be in the archive
// though it was not removed; its receipts show whether it was.
func (p Schedule) Archived(ctx context.Context, family string) iter.Seq2[ArchivedLetter, error] {
	if p.s.archive == nil || p.tenant == "" || family == "" {
		return func(yield func(ArchivedLetter, error) bool) {
			yield(ArchivedLetter{}, fmt.Errorf("retention: Archived needs an archive, a tenant and a family"))
		}
	}
	return archive.Read(ctx, p.s.archive, archiveFolder(p.tenant, family), func(l ArchivedLetter) background.RunID { return l.Run }, func(l ArchivedLetter) int64 { return l.Receipts })
}

func archiveFolder(tenant, family string) string {
	return archive.Segment(tenant) + "/" + archive.Segment(family) + "/"
}

// letterArchive is the archiver of an Archive.
type letterArchive struct {
	archive Archive
	timeout time.Duration // of writing one file
	log     *zap.Logger
}

func (a *letterArchive) Put(ctx context.Context, letters []journal.LetterRow, at time.Time) (name, digest string, err error) {
	records := make([]ArchivedLetter, len(letters))
	for i, f := range letters {
		records[i] = archivedLetterOf(f, at)
	}
	content, err := archive.Encode(records)
	if err != nil {
		return "", "", err
	}
	sum := sha256.Sum256(content)
	name = archiveFolder(letters[0].Run.Tenant, letters[0].Run.Family) + at.Format("2006/01/02/") + casework.NewID().String() + ".jsonl.gz"
	putCtx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	if err = a.archive.Put(putCtx, name, content); err != nil {
		err = fmt.Errorf("%w: %w", casework.ErrNotArchived, err)
	}
	return name, hex.EncodeToString(sum[:]), err
}

// Remove keeps letters that can't be purged from filling the archive. If the process dies first
// or the archive fails to remove the file, it stays and does no harm.
func (a *letterArchive) Remove(ctx context.Context, name string) {
	remover, ok := a.archive.(Remover)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), archiveRemoveTimeout)
	defer cancel()
	if err := remover.Remove(ctx, name); err != nil {
		a.log.Warn("could not remove the archive file of a failed removal", zap.String("name", name), zap.Error(err))
	}
}

// Timeouts of writing and removing one file.
const (
	archiveWriteTimeout  = time.Minute
	archiveRemoveTimeout = 10 * time.Second
)

func archivedLetterOf(f journal.LetterRow, at time.Time) ArchivedLetter {
	r, c := f.Run, f.Case
	out := ArchivedLetter{
		ArchivedAt: at, Run: r.ID, Case: c.ID, Receipts: c.Head.Seq, Link: hex.EncodeToString(c.Head.Link[:]), Tenant: r.Tenant, Family: r.Family,
		Queue: r.Queue, Target: r.Target, RetryKey: r.RetryKey, Policy: r.Policy.Encode(), Parent: r.Parent, Attempts: r.Attempt,
		DeadAt: r.DeadAt, ReasonCode: r.Reason, Class: r.Class, Error: r.Failure, MarkReason: f.Annotations.MarkReason, Request: r.Payload,
	}
	if c.Kind == journal.KindSettlement {
		out.OperationKey, out.Transaction, out.Submission = hex.EncodeToString(r.Operation[:]), c.Subject, c.Submission
		out.Escrow, out.Currency, out.Held, out.Settlement = c.Reference, c.Currency, c.Held, binding.SettlementSnapshot(c.State)
	}
	return out
}
