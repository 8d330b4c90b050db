package escrowhttp

import (
	"net/http"

	"github.com/recourse-dev/recourse/postadjudication/escrow"
)

// The types of failures. They are stable: policies match them, also as "http.*".
const (
	TypeRefused           = "http.refused"            // a 4xx that a retry would not change
	TypeKeyReused         = "http.key_reused"         // a 4xx about the idempotency key: another request may have used it
	TypeRateLimited       = "http.rate_limited"       // 429
	TypeTooEarly          = "http.too_early"          // 425
	TypeUnavailable       = "http.unavailable"        // 5xx
	TypeNoAnswer          = "http.no_answer"          // the connection closed before an answer
	TypeConnectionRefused = "http.connection_refused" // no connection was made
	TypeUnsent            = "http.unsent"             // the claim was too old to send the last byte
	TypeUnreadable        = "http.unreadable"         // a 2xx that does not state the amount moved
	TypeRedirect          = "http.redirect"           // 3xx
	TypeInFlight          = "http.in_flight"          // 409
	TypeAccepted          = "http.accepted"           // 202
	TypeTimeout           = "http.timeout"            // 408, or the call's own time limit
	TypeUnexpected        = "http.unexpected"         // anything else
	TypeNotExecuted       = "http.not_executed"       // a lookup states that nothing was moved
)

// Verdict is what a status code says about the money.
type Verdict struct {
	Class escrow.Class
	Retry bool   // whether a retry may help; ignored for Executed
	Type  string // type of the failure; empty: the default of the status
}

func (e *Executor) verdict(status int) Verdict {
	v := defaultVerdict(status)
	if override, ok := e.table[status]; ok {
		if override.Type == "" {
			override.Type = v.Type
		}
		return override
	}
	return v
}

// defaultVerdict implements the table of the package comment for responses.
func defaultVerdict(status int) Verdict {
	switch status {
	case http.StatusOK, http.StatusCreated:
		return Verdict{escrow.Executed, false, TypeUnreadable} // the type: for an override of the status without one
	case http.StatusAccepted:
		return Verdict{escrow.Unknown, true, TypeAccepted}
	case http.StatusRequestTimeout:
		return Verdict{escrow.Unknown, true, TypeTimeout}
	case http.StatusConflict:
		return Verdict{escrow.Unknown, true, TypeInFlight}
	case http.StatusTooEarly:
		return Verdict{escrow.NotExecuted, true, TypeTooEarly}
	case http.StatusTooManyRequests:
		return Verdict{escrow.NotExecuted, true, TypeRateLimited}
	}
	switch status / 100 {
	case 2:
		return Verdict{escrow.Unknown, true, TypeUnreadable}
	case 3:
		return Verdict{escrow.Unknown, true, TypeRedirect}
	case 4:
		return Verdict{escrow.NotExecuted, false, TypeRefused}
	case 5:
		return Verdict{escrow.Unknown, true, TypeUnavailable}
	}
	return Verdict{escrow.Unknown, true, TypeUnexpected}
}
