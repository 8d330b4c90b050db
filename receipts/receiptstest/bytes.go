package receiptstest

import (
	"context"
	"fmt"
	"time"

	"github.com/recourse-dev/recourse/receipts"
)

// awkwardText is text that stores and drivers like to change: line separators, astral characters, escapes,
// what looks like SQL, an array or JSON, a byte order mark, a combining mark, blanks at both ends.
const awkwardText = " \u2028\u2029\U0001F4B8\"\\/\b\t\n\f\r\x01\x7f'; -- $1 {\"a\": 1,NULL} \\u0041 \uFEFFe\u0301 "

func awkwardDrafts() []receipts.Draft {
	run := receipts.RunID(newID())
	full := receipts.Payload{
		Amount: receipts.MaxInteger, Excess: -receipts.MaxInteger, Reason: awkwardText,
		NextRetryAt: at.Add(time.Microsecond), LetterOf: run,
		Error:      receipts.Failure{Type: "t", Message: awkwardText, Stack: "goroutine 1\n\tmain.go:1"},
		Settlement: &receipts.SettlementSnapshot{Asked: receipts.MaxInteger},
	}
	return []receipts.Draft{
		{Run: run, Subtype: receipts.Submitted, Actor: awkwardText, At: at.Add(123456 * time.Microsecond), Payload: full},
		{Run: run, Subtype: receipts.AttemptStarted, Actor: "a", At: at.Add(time.Microsecond)},
		{Run: run, Subtype: receipts.AttemptStarted, Actor: "a", At: at.Add(999_999_999)}, // cut, not rounded
		{Subtype: receipts.Refused, Actor: "nobody's run", At: at.In(time.FixedZone("w", -9*3600-1800))},
		{Run: run, Subtype: receipts.HoldPlaced, Actor: "before 1970", At: time.Date(1883, 11, 18, 17, 0, 0, 1000, time.UTC)},
	}
}

func bodiesAreStoredToTheByte(ctx context.Context, log Log) error {
	c, tenant, drafts := receipts.CaseID(newID()), newTenant(), awkwardDrafts()
	if err := log.Append(ctx, c, tenant, drafts...); err != nil {
		return fmt.Errorf("append: %w", err)
	}
	rs, err := log.Read(ctx, tenant, c)
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	for i, d := range drafts {
		want, err := d.AppendBody(nil, c, tenant)
		if err != nil {
			return err
		}
		if i >= len(rs) || string(rs[i].Body) != string(want) {
			return fmt.Errorf("body %d of %d differs from\n%s", i+1, len(rs), want)
		}
	}
	_, err = readVerified(ctx, log, tenant, c, len(drafts))
	return err
}

func readsAreCopies(ctx context.Context, log Log) error {
	tenant := newTenant()
	c, before, err := startCase(ctx, log, tenant, 2)
	if err != nil {
		return err
	}
	scribbled, err := log.Read(ctx, tenant, c)
	if err != nil {
		return err
	}
	for i := range scribbled {
		clear(scribbled[i].Body)
		scribbled[i] = receipts.Receipt{}
	}
	return unchanged(ctx, log, tenant, c, before)
}
