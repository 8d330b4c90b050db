// Package circuit has circuit breakers: their states, how they change, and the rule by which they
// open and probe.
//
//	closed ──failing, hanging, manual──▶ open ──a probe is answered, manual──▶ half_open
//	   ▲                                  ▲                                     │   │
//	   │                                  └──────── failing again, manual ──────┘   │
//	   └───────────────────── answered often enough, manual ────────────────────────┘
//
// A Breaker is a value. Its methods return the breaker after a change, and whether it changed.
// Package background decides when it changes, and its store keeps it.
//
// The package is pure: it imports receipts and the standard library only. It must not know runs,
// stores, or why a call failed.
package circuit
