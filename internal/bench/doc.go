// Command bench measures recourse beside two peers on the same machine, in the same
// run: asynq with evidence written by hand, and River with the same evidence.
//
//	go run . -h
//	go run . -rounds 3                        # the table
//	go run . -systems recourse -workloads dead -cpuprofile /tmp/dead
//
// It starts a private Postgres (fsync and synchronous commits on, WAL files preallocated
// as on a server that has run for a while) and a private Redis (append-only). It measures
// every system and workload in a process of its own, on a fresh database and an emptied
// Redis, system after system within a round. Every system connects as the role that owns
// nothing, as the product does in production:
//
//	start servers ─▶ for each round, workload, system:
//	    database, schema ─▶ [preload process] ─▶ measuring process ─▶ verify, drop
//
// The result is verified exactly: ended tasks, rows of evidence, and for recourse its
// audit. A measurement that fails this ends the run.
//
// Client and servers share the machine with all other processes. Ratios within a round
// are meaningful, absolute figures only on a quiet machine.
//
// It is a module of its own, so that the peers never become dependencies of the
// product. It uses the product's public packages, background, ojs and schema, and its private
// servers. It uses the product's tables only to count rows, and to make letters and jobs.
package main
