package demo

import (
	"context"
	"errors"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/internal/intake"
	"github.com/recourse-dev/recourse/postadjudication"
)

// submitBatchSize is how many lines are submitted in one call.
const submitBatchSize = 64

// transaction identifies a case.
type transaction struct{ tenant, id string }

// submitResult is the result of the submitted lines.
type submitResult struct {
	lines        int
	replies      map[postadjudication.Reply]int
	badLines     int // lines that could not be parsed
	problems     []intake.Problem
	transactions []transaction                    // transactions with a run, each once
	runs         map[transaction]background.RunID // the latest of each
}

// escrowID identifies the escrow of a line. No batch has two lines of one escrow: which of them is
// accepted would be random, and a demonstration should give the same result each time.
type escrowID struct{ tenant, reference string }

// submitInput reads the input and submits every good line, in order.
func (d *Demo) submitInput(ctx context.Context, bar *screen.Progress) (*submitResult, error) {
	h := &submitResult{replies: map[postadjudication.Reply]int{}, runs: map[transaction]background.RunID{}}
	var batch []postadjudication.Adjudication
	escrows := map[escrowID]bool{}
	flush := func() error {
		err := d.submit(ctx, h, batch)
		batch = batch[:0]
		clear(escrows)
		return err
	}
	for line, err := range intake.Lines(d.options.Input) {
		if err != nil {
			return h, err
		}
		h.lines++
		if len(line.Problems) > 0 {
			h.badLines++
			h.problems = append(h.problems, line.Problems...)
			continue
		}
		a := line.Adjudication
		own := escrowID{a.Tenant, a.EscrowReference}
		if len(batch) == submitBatchSize || escrows[own] || a.Generation > 1 {
			if err := errors.Join(flush(), bar.At(h.lines)); err != nil {
				return h, err
			}
		}
		if err := d.awaitEarlierRun(ctx, h, a); err != nil {
			return h, err
		}
		batch, escrows[own] = append(batch, a), true
	}
	return h, flush()
}

// awaitEarlierRun waits for the end of the transaction's earlier run: a newer decision is refused
// while an older one is being executed.
func (d *Demo) awaitEarlierRun(ctx context.Context, h *submitResult, a postadjudication.Adjudication) error {
	run, ok := h.runs[transaction{a.Tenant, a.TransactionReceiptID}]
	if !ok || a.Generation == 1 {
		return nil
	}
	return d.poll(ctx, func() (bool, error) { return d.tracker.hasEnded(run), nil })
}

func (d *Demo) submit(ctx context.Context, h *submitResult, batch []postadjudication.Adjudication) error {
	answers, errs := d.main.Service.SubmitBatch(ctx, batch)
	for i, answer := range answers {
		if errs[i] != nil {
			return errs[i]
		}
		h.replies[answer.Reply]++
		if answer.Reply != postadjudication.Created {
			continue
		}
		d.tracker.add(answer.Run, batch[i].Tenant)
		t := transaction{batch[i].Tenant, batch[i].TransactionReceiptID}
		if _, seen := h.runs[t]; !seen {
			h.transactions = append(h.transactions, t)
		}
		h.runs[t] = answer.Run
	}
	return nil
}
