package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/recourse-dev/recourse/internal/api"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
)

// Export copies an export of the server to out, however long it takes. It returns an error
// if the export is not complete.
func (d DeadLetters) Export(ctx context.Context, f deadletter.Filter, where string, format deadletter.Format, out io.Writer) (done deadletter.Exported, err error) {
	query, err := filterQuery(f)
	if err != nil {
		return done, err
	}
	query.Set("format", string(format))
	addGiven(query, "where", where)
	if done, err = d.copyExport(ctx, query, out); err != nil {
		err = d.wrapError(err)
	}
	return done, err
}

func (d DeadLetters) copyExport(ctx context.Context, query url.Values, out io.Writer) (done deadletter.Exported, err error) {
	resp, err := d.send(ctx, http.MethodGet, "/dead-letters/export", query, nil, "")
	if err != nil {
		return done, d.unreachable(ctx, err)
	}
	defer resp.Body.Close() // only read from
	if resp.StatusCode != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
		if err != nil {
			return done, d.unreachable(ctx, err)
		}
		return done, d.problemError(resp, text)
	}
	into := &exportWriter{Writer: out}
	if _, err := io.Copy(into, resp.Body); err != nil {
		if into.err != nil {
			return done, into.err
		}
		return done, d.unreachable(ctx, fmt.Errorf("the export was cut off: %w", err))
	}
	for _, t := range []struct {
		name string
		to   *int
	}{{api.ExportedLetters, &done.Letters}, {api.ExportedScanned, &done.Scanned}, {api.ExportedUndecided, &done.Undecided}} {
		var bad error
		*t.to, bad = strconv.Atoi(resp.Trailer.Get(t.name))
		err = errors.Join(err, bad)
	}
	if err != nil {
		return done, fmt.Errorf("%s did not confirm that the export is complete: does a proxy drop trailers?", d.base.Host)
	}
	return done, nil
}

// exportWriter keeps write errors: io.Copy does not tell them from read errors.
type exportWriter struct {
	io.Writer
	err error
}

func (w *exportWriter) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	w.err = err
	return n, err
}
