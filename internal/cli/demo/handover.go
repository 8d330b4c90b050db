package demo

import (
	"context"

	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/internal/intake"
	"github.com/recourse-dev/recourse/postadjudication"
)

// chunk is how many lines are handed over at once.
const chunk = 64

// transaction is what a case is about.
type transaction struct{ tenant, id string }

// handover is what the lines were answered.
type handover struct {
	lines        int
	replies      map[postadjudication.Reply]int
	bad          int // lines that could not be understood
	problems     []intake.Problem
	transactions []transaction // with a run of ours, each once
}

// handOver reads the input and hands every good line over, in its order.
func (d *Demo) handOver(ctx context.Context, bar *screen.Progress) (*handover, error) {
	h := &handover{replies: map[postadjudication.Reply]int{}}
	var batch []postadjudication.Adjudication
	seen := map[transaction]bool{}
	flush := func() error {
		err := d.submit(ctx, h, batch, seen)
		batch = batch[:0]
		return err
	}
	for line, err := range intake.Lines(d.options.Input) {
		if err != nil {
			return h, err
		}
		h.lines++
		if len(line.Problems) > 0 {
			h.bad++
			h.problems = append(h.problems, line.Problems...)
			continue
		}
		if batch = append(batch, line.Adjudication); len(batch) == chunk {
			if err := flush(); err != nil {
				return h, err
			}
			if err := bar.At(h.lines); err != nil {
				return h, err
			}
		}
	}
	return h, flush()
}

func (d *Demo) submit(ctx context.Context, h *handover, batch []postadjudication.Adjudication, seen map[transaction]bool) error {
	answers, errs := d.main.Service.SubmitBatch(ctx, batch)
	for i, answer := range answers {
		if errs[i] != nil {
			return errs[i]
		}
		h.replies[answer.Reply]++
		if answer.Reply != postadjudication.Created {
			continue
		}
		d.rest.handedOver(answer.Run, batch[i].Tenant)
		t := transaction{batch[i].Tenant, batch[i].TransactionReceiptID}
		if !seen[t] {
			seen[t] = true
			h.transactions = append(h.transactions, t)
		}
	}
	return nil
}
