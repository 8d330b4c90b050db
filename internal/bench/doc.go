// Command bench measures recourse beside two peers on the same machine, in the same
// run: asynq with evidence written by hand, and River with the same evidence.
//
//	go run . -h
//	go run . -rounds 3                        # the table
//	go run . -systems recourse -workloads dead -cpuprofile /tmp/dead
//
// It starts a private Postgres (fsync and synchronous commits on, its log files there
// as on a server that has run for a while) and a private Redis (append-only), and measures every system and workload in a process of its
// own on a fresh database and an emptied Redis, system after system within a round:
//
//	start servers ─▶ for each round, workload, system:
//	    database, schema ─▶ [preload process] ─▶ measuring process ─▶ verify, drop
//
// What must be there afterwards is counted exactly: ended tasks, rows of evidence,
// and for recourse its own audit. A measurement that fails this ends the run.
//
// Client and servers share the machine with whatever else runs on it. Ratios within
// a round mean something, absolute figures only on a quiet machine.
//
// It is a module of its own, so that the peers never become dependencies of the
// product. It uses the product's public door postadjudication, and its private
// servers; it knows the product's tables only to count their rows.
package main
