// Package retention keeps dead letters as long as their rules say: it announces the expiry of each,
// archives it, and purges it.
//
//	open ─▶ announced ─▶ expired ─▶ archived ─▶ purged
//
// It promises that no letter is purged by age before the expiry that was announced, except those of jobs,
// which are not announced; that no held letter and none with an unknown outcome is purged; that a
// settlement's letter is purged only after its archive file is stored, and the receipt names the file and
// its digest; and that a letter, tenant or family that fails blocks no other.
//
// It imports casework for every change, internal/archive for files, and the journal. It must not
// know plans, rules that replay, and the service.
package retention
