package openwop

import (
	"context"
	"errors"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/openwop/spec"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

// runLog is the log of a run, which grows with each call of read.
type runLog struct {
	spec.Log
	service *postadjudication.Service
	tenant  string
	of      background.CaseID
	after   int64 // the sequence up to which the receipts of the case were read
}

// receiptPage is how many receipts of a case are read at once.
const receiptPage = 200

// openRun reads a run and its log. A run that the door does not show is refusal.ErrNotFound.
func (s *Server) openRun(ctx context.Context, tenant, id string) (log *runLog, status casestatus.Status, err error) {
	run, err := receipts.ParseRunID(id)
	if err != nil {
		return nil, status, refusal.ErrNotFound
	}
	err = s.inReadSlot(ctx, tenant, func() error {
		if status, err = s.Service.Status(ctx, tenant, run); err != nil {
			return err
		}
		workflow, visible := s.visible(status)
		if !visible {
			return refusal.ErrNotFound
		}
		log = &runLog{Log: spec.Log{Workflow: workflow, Run: run}, service: s.Service, tenant: tenant, of: status.Case}
		return log.read(ctx)
	})
	return log, status, err
}

// read appends what was committed since the last call.
func (l *runLog) read(ctx context.Context) error {
	err := eachReceipt(ctx, l.service, l.tenant, l.of, l.after, func(r receipts.Receipt) error {
		if l.Ended() {
			return errEnded // what follows is about other runs
		}
		l.after = r.Seq
		return l.Add([]receipts.Receipt{r})
	})
	if errors.Is(err, errEnded) {
		return nil
	}
	return err
}

// errEnded stops the reading of receipts at the end of a log.
var errEnded = errors.New("the log has ended")

// eachReceipt calls f for the receipts of a case after a sequence, in order.
func eachReceipt(ctx context.Context, s *postadjudication.Service, tenant string, of background.CaseID, after int64, f func(receipts.Receipt) error) error {
	for {
		page, err := s.Receipts(ctx, tenant, of, after, receiptPage)
		if err != nil {
			return err
		}
		for _, r := range page {
			if err := f(r); err != nil {
				return err
			}
			after = r.Seq
		}
		if len(page) < receiptPage {
			return nil
		}
	}
}

// visible returns the workflow of a run, and false if the door does not show the run: it is a job, its
// dead letter was purged, or it was dead-lettered more than RetentionDays ago.
func (s *Server) visible(run casestatus.Status) (spec.Workflow, bool) {
	w, known := s.workflows[run.Family]
	over := run.DeadAt != nil && !s.Now().Before(run.DeadAt.AddDate(0, 0, s.RetentionDays))
	return w, known && !over && run.Letter != background.LetterPurged
}
