package retention_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/audit"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/retention"
)

// Letters of settlements are kept for 90 days here. A week before its end each is announced, then it is archived
// and purged. Its receipts stay.
func ExampleSchedule() {
	folder, err := os.MkdirTemp("", "archive")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(folder)
	archive, err := retention.OpenDir(folder) // an object store can implement Archive as well
	if err != nil {
		panic(err)
	}
	kept := func(c *postadjudication.Config) {
		c.Archive, c.Retention = archive, []retention.Rule{{Family: postadjudication.Family, MaxAge: "P90D"}}
	}
	svc, stop := rig.Example(kept)
	defer stop()
	ctx := context.Background()
	svc.DeadLetter(1, rig.Refuses)

	schedule := svc.As("acme", "").DeadLetters
	rules, err := schedule.Retention(ctx)
	fmt.Println(rules[0].Family, rules[0].MaxAge, rules[0].Archived, err)

	// Another process, whose clock is ahead, prunes. Run does so every Config.PruneEvery.
	later := svc.NewPruner(kept)
	for _, days := range []int{0, 84, 92} {
		report, err := later.At(time.Duration(days) * 24 * time.Hour).Prune(ctx)
		fmt.Println(days, report.Announced, report.Pruned, err)
	}
	for letter, err := range later.As("acme", "").DeadLetters.Archived(ctx, postadjudication.Family) {
		fmt.Println(letter.Transaction, letter.Error.Message, letter.Receipts, err)
	}

	// The receipts name the files and their digests. An audit compares them.
	files, err := audit.OpenArchive(folder)
	if err != nil {
		panic(err)
	}
	report, err := audit.Run(ctx, svc.AuditReader(), audit.Query{Archive: files})
	fmt.Println(report.Archive.Same, report.Archive.Changed, err)
	// Output:
	// settlement 90d true <nil>
	// 0 0 0 <nil>
	// 84 1 0 <nil>
	// 92 0 1 <nil>
	// txr_1 account closed 4 <nil>
	// 1 0 <nil>
}
