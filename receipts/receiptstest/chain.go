package receiptstest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/recourse-dev/recourse/receipts"
)

func appendsContinueOneChain(ctx context.Context, log Log) error {
	c, run, tenant := receipts.CaseID(newID()), receipts.RunID(newID()), newTenant()
	all := make([]receipts.Draft, 6)
	for i := range all {
		all[i] = draft(run, fmt.Sprint(i))
		all[i].At = at.Add(-time.Duration(i) * time.Hour) // order is the order of appending, not of clocks
	}
	for _, move := range [][]receipts.Draft{all[:1], all[1:4], all[4:]} {
		if err := log.Append(ctx, c, tenant, move...); err != nil {
			return fmt.Errorf("append: %w", err)
		}
	}
	got, err := readVerified(ctx, log, tenant, c, len(all))
	if err != nil {
		return err
	}
	want, _, err := receipts.Chain(c, tenant, receipts.Genesis(c), all...)
	if err != nil {
		return err
	}
	for i := range want {
		if got[i].Link != want[i].Link {
			return fmt.Errorf("receipt %d is %s, want %s", i+1, got[i].Body, want[i].Body)
		}
	}
	return nil
}

// Half of the appends carry two drafts, which must stay neighbours. The case is new, so that the race for
// its first receipt is run too.
func concurrentAppendsLeaveNoGaps(ctx context.Context, log Log) error {
	const writers, rounds = 8, 6
	c, tenant := receipts.CaseID(newID()), newTenant()
	done := make(chan error, writers)
	for w := range writers {
		go func() {
			run := receipts.RunID(newID())
			var errs []error
			for i := range rounds {
				name := fmt.Sprintf("%d.%d", w, i)
				move := []receipts.Draft{draft(run, name+".first"), draft(run, name+".second")}
				errs = append(errs, log.Append(ctx, c, tenant, move[:1+i%2]...))
			}
			done <- errors.Join(errs...)
		}()
	}
	var errs []error
	for range writers {
		errs = append(errs, <-done)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("append: %w", err)
	}
	rs, err := readVerified(ctx, log, tenant, c, writers*(rounds+rounds/2))
	if err != nil {
		return err
	}
	return checkOnceAndAdjacent(rs, writers, rounds)
}

func checkOnceAndAdjacent(rs []receipts.Receipt, writers, rounds int) error {
	place := make(map[string]int, len(rs))
	for i, r := range rs {
		p, err := r.Payload()
		if err != nil {
			return err
		}
		place[p.Reference] = i
	}
	for w := range writers {
		last := -1
		for i := range rounds {
			first, ok := place[fmt.Sprintf("%d.%d.first", w, i)]
			if !ok || first < last {
				return fmt.Errorf("append %d of writer %d is missing or before the one before it", i, w)
			}
			second, ok := place[fmt.Sprintf("%d.%d.second", w, i)]
			if two := i%2 == 1; ok != two || two && second != first+1 {
				return fmt.Errorf("append %d of writer %d was torn apart", i, w)
			}
			last = first
		}
	}
	return nil
}
