package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/internal/redact"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
)

// exportAPI has the operations of searches by condition and exports of dead letters.
type exportAPI struct{ *API }

// Trailers of an export. A server sends them only after a complete export.
const (
	ExportedLetters   = "Recourse-Letters"
	ExportedScanned   = "Recourse-Scanned"
	ExportedUndecided = "Recourse-Undecided"
)

type exportInput struct {
	LetterFilter
	Where  string `query:"where" maxLength:"4096" doc:"A CEL condition over the members of a letter's JSON" example:"amount.minor > 100000 && error.type.startsWith(\"Conn\")"`
	Format string `query:"format" enum:"json,jsonl,csv,excel" default:"json" doc:"excel is CSV of which a spreadsheet keeps ids, times and long numbers as they are"`
}

type searchInput struct {
	LetterFilter
	Where string `query:"where" required:"true" maxLength:"4096" doc:"A CEL condition over the members of a letter's JSON" example:"amount.minor > 100000 && error.type.startsWith(\"Conn\")"`
	Sort  string `query:"sort" default:"newest" enum:"newest,oldest,highest_amount,lowest_amount,most_attempts,last_seen"`
	After string `query:"after" doc:"next of the previous answer, with the same filter, condition and sort"`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	Scan  int    `query:"scan" minimum:"1" maximum:"100000" default:"20000" doc:"Maximum number of letters to scan for the answer"`
}

type searchOutput struct {
	Body deadletter.Found
}

// exportTypes maps each format to its media type.
var exportTypes = map[deadletter.Format]string{
	deadletter.JSON: "application/json", deadletter.JSONL: "application/jsonl", deadletter.CSV: "text/csv; charset=utf-8",
	deadletter.Excel: "text/csv; charset=utf-8",
}

func (a exportAPI) operations(h huma.API) {
	register(a.API, h, operation{
		id: "search-dead-letters", method: http.MethodGet, path: "/dead-letters/search", action: access.List, summary: "Search dead letters by a condition",
		description: "Scans the letters that the other parameters select. scanned and complete report how far the scan came; next continues it. 429 too_many_conditions while two searches, exports or plans with a condition of the tenant are running.",
	}, a.search)
	register(a.API, h, operation{
		id: "export-dead-letters", method: http.MethodGet, path: "/dead-letters/export", action: access.List, summary: "Export dead letters, the oldest first",
		description: "A stream of json (one array), jsonl or csv. Only a complete export ends with the trailers " + ExportedLetters + ", " + ExportedScanned + " and " + ExportedUndecided + "; otherwise the connection is cut. It counts as an open stream. With where it takes at most two minutes, and 429 too_many_conditions as for a search.",
	}, a.export)
}

func (a exportAPI) search(ctx context.Context, c door.Caller, in *searchInput) (*searchOutput, error) {
	filter, err := in.filter()
	if err != nil {
		return nil, err
	}
	found, err := a.service.As(c.Tenant, "").DeadLetters.Search(ctx, deadletter.Search{
		Filter: filter, Where: in.Where, Sort: deadletter.Sort(in.Sort), After: in.After, Limit: in.Limit, Scan: in.Scan,
	})
	return &searchOutput{found}, err
}

// export writes while it reads. A failure before the first byte is answered as a problem. A
// failure after it cuts the connection, so that nobody takes a part for the whole.
func (a exportAPI) export(_ context.Context, c door.Caller, in *exportInput) (*huma.StreamResponse, error) {
	filter, err := in.filter()
	if err != nil {
		return nil, err
	}
	release, err := a.door.AcquireStream(c)
	if err != nil {
		return nil, err
	}
	format := deadletter.Format(in.Format)
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		defer release()
		ctx, cancel := context.WithCancel(hc.Context())
		defer cancel()
		defer context.AfterFunc(a.door.Stopping(), cancel)()
		r, w := humago.Unwrap(hc)
		out := &exportWriter{Writer: w, ctl: http.NewResponseController(w), checkKey: func() error { return a.door.CheckKey(ctx, c) }, checked: time.Now()}
		w.Header().Set("Content-Type", exportTypes[format])
		w.Header().Set("Trailer", ExportedLetters+", "+ExportedScanned+", "+ExportedUndecided)
		head := r.Method == http.MethodHead
		did, err := a.exportTo(ctx, c, filter, in.Where, format, head, out)
		if !head {
			a.logExport(c, filter, in.Where, did, err)
		}
		switch {
		case err != nil && !out.started:
			w.Header().Del("Trailer")
			a.mux.Refuse(w, r.WithContext(hc.Context()), err)
			return
		case err != nil:
			a.log.Warn("export cut off", zap.String("tenant", c.Tenant), zap.Int("letters", did.Letters), zap.Error(err))
			panic(http.ErrAbortHandler)
		case head:
			return
		}
		w.Header().Set(ExportedLetters, strconv.Itoa(did.Letters))
		w.Header().Set(ExportedScanned, strconv.Itoa(did.Scanned))
		w.Header().Set(ExportedUndecided, strconv.Itoa(did.Undecided))
	}}, nil
}

// exportTo writes an export. For a HEAD request it only checks the condition.
func (a exportAPI) exportTo(ctx context.Context, c door.Caller, f deadletter.Filter, where string, format deadletter.Format, head bool, out io.Writer) (deadletter.Exported, error) {
	if !head {
		return a.service.As(c.Tenant, "").DeadLetters.Export(ctx, f, where, format, out)
	}
	return deadletter.Exported{}, a.service.As(c.Tenant, "").DeadLetters.CheckCondition(ctx, where)
}

// logExport logs an export: who, which letters and how many.
func (a exportAPI) logExport(c door.Caller, filter deadletter.Filter, where string, did deadletter.Exported, err error) {
	text, merr := json.Marshal(filter)
	a.log.Named(door.AccessLogger).Info("dead letters were exported", zap.String("tenant", c.Tenant), zap.String("principal", c.Principal), zap.String("key", c.Key),
		zap.String("filter", redact.Text(string(text))), zap.String("where", redact.Text(where)), zap.Int("letters", did.Letters), zap.Bool("complete", err == nil), zap.NamedError("filter_error", merr))
}

// exportWriter sets a new write deadline for each part, so that a long export is not cut off
// while its reader keeps reading. It writes nothing more once the key of the reader has ended, which it
// checks every keyCheckInterval.
type exportWriter struct {
	io.Writer
	ctl      *http.ResponseController
	checkKey func() error
	checked  time.Time // when the key was checked
	started  bool      // something was written
}

func (p *exportWriter) Write(b []byte) (int, error) {
	if time.Since(p.checked) >= keyCheckInterval {
		if err := p.checkKey(); err != nil {
			return 0, err
		}
		p.checked = time.Now()
	}
	p.started = true
	err := p.ctl.SetWriteDeadline(time.Now().Add(streamWriteTimeout))
	n, werr := p.Writer.Write(b)
	return n, errors.Join(err, werr)
}
