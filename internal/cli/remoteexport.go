package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/recourse-dev/recourse/internal/api"
	"github.com/recourse-dev/recourse/postadjudication"
)

func (s *server) Search(ctx context.Context, q postadjudication.LetterSearch) (out postadjudication.LettersFound, err error) {
	query, err := queryOf(q.Filter)
	if err != nil {
		return out, err
	}
	query.Set("where", q.Where)
	query.Set("limit", strconv.Itoa(q.Limit))
	for name, word := range map[string]string{"sort": string(q.Sort), "after": q.After} {
		if word != "" {
			query.Set(name, word)
		}
	}
	err = s.get(ctx, "/dead-letters/search", query, &out)
	return out, err
}

// Export copies what the server writes, however long it takes. What does not come whole
// is an error.
func (s *server) Export(ctx context.Context, f postadjudication.LetterFilter, where string, format postadjudication.ExportFormat, out io.Writer) (done postadjudication.Exported, err error) {
	query, err := queryOf(f)
	if err != nil {
		return done, err
	}
	query.Set("format", string(format))
	if where != "" {
		query.Set("where", where)
	}
	resp, err := s.send(ctx, http.MethodGet, "/dead-letters/export", query, nil, "")
	if err != nil {
		return done, s.lost(ctx, err)
	}
	defer resp.Body.Close() // only read from
	if resp.StatusCode != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(resp.Body, remoteMost))
		if err != nil {
			return done, s.lost(ctx, err)
		}
		return done, s.refused(resp, text)
	}
	into := &writing{Writer: out}
	if _, err := io.Copy(into, resp.Body); err != nil {
		if into.err != nil {
			return done, into.err
		}
		return done, s.lost(ctx, fmt.Errorf("the export was cut off: %w", err))
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
		return done, fmt.Errorf("%s did not say that the export is whole: is there a proxy that drops trailers?", s.base.Host)
	}
	return done, nil
}

// writing tells a failure to write from one to read.
type writing struct {
	io.Writer
	err error
}

func (w *writing) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	w.err = err
	return n, err
}
