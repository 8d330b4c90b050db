package audit

import (
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/internal/archive"
	"github.com/recourse-dev/recourse/internal/schema/stored"
	"github.com/recourse-dev/recourse/receipts"
)

var errLost = errors.New("the connection is lost")

// lostRows is a reader whose connection breaks off.
type lostRows struct{ RowReader }

func (lostRows) PlanItems(context.Context, uuid.UUID, func(PlanItem)) error { return errLost }

func (lostRows) EventsFrom(context.Context, string, int64) iter.Seq2[NumberedReceipt, error] {
	return func(yield func(NumberedReceipt, error) bool) { yield(NumberedReceipt{}, errLost) }
}

func (lostRows) Case(context.Context, string, receipts.CaseID) (StoredCase, []receipts.Receipt, error) {
	return StoredCase{}, nil, errLost
}

// What can't be read is an error, and no break.
func TestALostConnectionIsNoBreak(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	id, webhook := receipts.CaseID(uuid.New()), uuid.New()
	rs, _, err := receipts.Chain(id, "acme", receipts.Genesis(id), receipts.Draft{Subtype: receipts.WebhookChanged, Actor: "user:ada", At: time.Unix(1_800_000_000, 0), Payload: receipts.Payload{
		Reference: webhook.String(), AskedFor: "create", ContentDigest: "d", Webhook: `{"state":"active"}`, WebhookPosition: &receipts.WebhookPosition{},
	}})
	if err != nil {
		t.Fatal(err)
	}
	s := newAuditor(lostRows{}, Query{})
	for what, o := range map[string]OperationLog{
		"items of a plan": {Subject: stored.BulkLog, Plans: []BulkPlan{{ID: uuid.New()}}},
		"events":          {Case: id, Subject: stored.WebhookLog, Head: receipts.Head{Seq: 1, Link: rs[0].Link}, Trail: rs, Webhooks: []Webhook{{ID: webhook, PositionVersion: 1}}},
	} {
		a := s.newReport()
		if err := s.auditOperationLog(ctx, a, "acme", o); !errors.Is(err, errLost) || slices.ContainsFunc(a.Breaks, func(b Break) bool { return strings.Contains(b.What, errLost.Error()) }) {
			t.Errorf("%s: %v, %+v", what, err, a.Breaks)
		}
	}
	if _, _, err := s.auditCaseRechecked(ctx, "acme", StoredCase{}, nil); !errors.Is(err, errLost) || errors.Is(err, errCaseVanished) {
		t.Errorf("a case: %v", err)
	}
}

// A receipt may name anything as its archive file. What can't be read is a break, and the audit goes on.
func TestAnArchiveFileThatCanNotBeReadIsABreak(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	store, err := archive.OpenDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(folder, "acme"), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, caseID := context.Background(), receipts.CaseID(uuid.New())
	var drafts []receipts.Draft
	for _, name := range []string{"../outside", "acme", "/etc/passwd"} {
		drafts = append(drafts, receipts.Draft{Run: receipts.RunID(uuid.New()), Subtype: receipts.Purged, Actor: "user:ada", At: time.Unix(1_800_000_000, 0), Payload: receipts.Payload{Archive: name, ArchiveDigest: "00"}})
	}
	rs, _, err := receipts.Chain(caseID, "acme", receipts.Genesis(caseID), drafts...)
	if err != nil {
		t.Fatal(err)
	}
	c, a := newArchiveCheck(store), emptyReport()
	if err := c.check(ctx, a, breakSubject{tenant: "acme", caseID: caseID}, rs); err != nil {
		t.Fatal(err)
	}
	if want := (Archived{Files: 3, Unreadable: 3}); c.summary != want || len(a.Breaks) != 3 || a.Breaks[0].Invariant != InvariantArchive || a.Breaks[0].Receipt != rs[0].ID() {
		t.Errorf("%+v, %+v", c.summary, a.Breaks)
	}
	stopped, stop := context.WithCancel(ctx)
	stop()
	if err := newArchiveCheck(stoppedStore{}).check(stopped, a, breakSubject{}, rs); !errors.Is(err, context.Canceled) {
		t.Errorf("an audit that was stopped: %v", err)
	}
}

// stoppedStore is an archive that gives up with its context.
type stoppedStore struct{ archive.Store }

func (stoppedStore) Open(ctx context.Context, _ string) (io.ReadCloser, error) { return nil, ctx.Err() }

// Of a case that a file lacks, only what a file can show is said to be checked.
func TestTheReportOfAMissingCaseSaysWhatIsNotChecked(t *testing.T) {
	t.Parallel()
	text, _, _ := threeCases(t)
	if a := Empty(opened(t, text)); !slices.Equal(a.NotChecked, needRows) || a.Verdict(InvariantEscrows) != NotCheckedVerdict {
		t.Errorf("of a file: %q", a.NotChecked)
	}
	if a := Empty(lostRows{}); !slices.Equal(a.NotChecked, []string{InvariantOrder}) {
		t.Errorf("of a database: %q", a.NotChecked)
	}
}

func TestATenantThatIsNamedTwiceIsAuditedOnce(t *testing.T) {
	t.Parallel()
	text, _, _ := threeCases(t)
	a, err := Run(context.Background(), opened(t, text), Query{Tenants: []string{"bank", "acme", "bank"}})
	if err != nil || a.Cases != 3 || a.Receipts != 9 {
		t.Errorf("%d cases, %d receipts, %v", a.Cases, a.Receipts, err)
	}
}

// Every difference shows the two values that differ.
func TestEveryDifferenceShowsWhatDiffers(t *testing.T) {
	t.Parallel()
	at, yes, no := time.Unix(1_800_000_000, 0).UTC(), true, false
	for _, d := range []differences{
		compareAnnotations(Annotations{Held: true, HoldReason: "a"}, Annotations{Held: true, HoldReason: "b"}),
		compareAnnotations(Annotations{MarkReason: "a", Review: &yes}, Annotations{MarkReason: "b", Review: &yes}),
		compareAnnotations(Annotations{Reprocess: &yes}, Annotations{Reprocess: &no}),
		compareAnnotations(Annotations{RetentionEndsAt: at}, Annotations{RetentionEndsAt: at.Add(time.Microsecond)}),
	} {
		if len(d) != 1 || d[0].stored == d[0].recorded {
			t.Errorf("%+v", d)
		}
	}
}
