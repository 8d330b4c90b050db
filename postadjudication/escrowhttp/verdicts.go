package escrowhttp

import (
	"net/http"

	"github.com/recourse-dev/recourse/postadjudication"
)

// The names of failures. They are stable: policies match them, "http.*" too.
const (
	TypeRefused           = "http.refused"            // a 4xx that calling again won't change
	TypeRateLimited       = "http.rate_limited"       // 429
	TypeTooEarly          = "http.too_early"          // 425
	TypeUnavailable       = "http.unavailable"        // 5xx
	TypeNoAnswer          = "http.no_answer"          // the connection ended first
	TypeConnectionRefused = "http.connection_refused" // no connection was made
	TypeUnsent            = "http.unsent"             // the claim was too old when the last byte was to leave
	TypeUnreadable        = "http.unreadable"         // a 2xx that does not say what was moved
	TypeRedirect          = "http.redirect"           // 3xx
	TypeInFlight          = "http.in_flight"          // 409
	TypeAccepted          = "http.accepted"           // 202
	TypeTimeout           = "http.timeout"            // 408, or the call's own time limit
	TypeUnexpected        = "http.unexpected"         // anything else
	TypeNotExecuted       = "http.not_executed"       // a lookup's proof that nothing was moved
)

// Verdict is what a status code says of the money.
type Verdict struct {
	Class postadjudication.Class
	Retry bool   // whether calling again may help; ignored for Executed
	Type  string // name of the failure; empty means the one the status has by itself
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

// defaultVerdict is the table of the package comment, for answers that came.
func defaultVerdict(status int) Verdict {
	switch status {
	case http.StatusOK, http.StatusCreated:
		return Verdict{postadjudication.Executed, false, TypeUnreadable}
	case http.StatusAccepted:
		return Verdict{postadjudication.Unknown, true, TypeAccepted}
	case http.StatusRequestTimeout:
		return Verdict{postadjudication.Unknown, true, TypeTimeout}
	case http.StatusConflict:
		return Verdict{postadjudication.Unknown, true, TypeInFlight}
	case http.StatusTooEarly:
		return Verdict{postadjudication.NotExecuted, true, TypeTooEarly}
	case http.StatusTooManyRequests:
		return Verdict{postadjudication.NotExecuted, true, TypeRateLimited}
	}
	switch status / 100 {
	case 2:
		return Verdict{postadjudication.Unknown, true, TypeUnreadable}
	case 3:
		return Verdict{postadjudication.Unknown, true, TypeRedirect}
	case 4:
		return Verdict{postadjudication.NotExecuted, false, TypeRefused}
	case 5:
		return Verdict{postadjudication.Unknown, true, TypeUnavailable}
	}
	return Verdict{postadjudication.Unknown, true, TypeUnexpected}
}
