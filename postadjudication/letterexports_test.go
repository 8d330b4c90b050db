package postadjudication_test

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/sheet"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/deadletter/report"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/retrypolicy"
	"github.com/recourse-dev/recourse/settlement"
)

// insertLetters inserts open settlement letters as their deaths would have, with the last
// receipts only. Their error texts look like formulas.
func insertLetters(r *rig.Rig, n int) {
	r.T.Helper()
	for _, q := range []string{
		`CREATE TABLE planted AS SELECT n, gen_random_uuid() AS run, gen_random_uuid() AS kase, '2026-11-01T00:00:00Z'::timestamptz + (n % 5000) * interval '1 second' AS at FROM generate_series(1, ` + strconv.Itoa(n) + `) n`,
		`INSERT INTO recourse.escrows (tenant, reference, currency, held, committed) SELECT 'acme', 'esc_' || n, 'EUR', n, n FROM planted`,
		`INSERT INTO recourse.cases (id, tenant, kind, subject, escrow_id, submission, content, progression, reason_code, lifecycle, adjudication, generation, asked, reserved, run_id, unknown_open, last_seq, last_link)
			SELECT kase, 'acme', 'settlement', 'txr_' || n, e.id, 'sub_' || n, '\x00', 'dispute-ready', 'escalate', 're-escalated', 'release', 1, n, n, run, 0, 7, decode(repeat('00', 32), 'hex')
			FROM planted p JOIN recourse.escrows e ON e.reference = 'esc_' || p.n`,
		`INSERT INTO recourse.runs (id, case_id, tenant, family, retry_key, queue, target, policy, state, live, letter, active, attempt_count, budget_spent, class, last_transition, due_at, dead_at, reason, error_type, error_code, error_text)
			SELECT run, kase, 'acme', 'settlement', 'txr_' || n || ':release', 'settlement:0', 'escrow', '` + retrypolicy.Policy{}.Normalize().Encode() + `', 'dead_lettered', false, 'open', true, 1, 1,
			'not_executed', run, at, at, 'final', 'http.refused', '422', '=cmd|"' || n || '"' || chr(10) || 'A0, closed' FROM planted`,
		`INSERT INTO recourse.receipts (case_id, seq, run_id, tenant, source, subtype, actor, at, body, link)
			SELECT kase, 7, run, 'acme', 'post_adjudication_retry', 'dead-lettered', 'worker', at, '{}', decode(repeat('00', 32), 'hex') FROM planted`,
		`INSERT INTO recourse.event_log (last, tenant, case_ids, seqs) SELECT sum(count(*)) OVER (ORDER BY n / 500), 'acme', array_agg(kase), array_agg(7::bigint) FROM planted GROUP BY n / 500 ORDER BY 1`,
	} {
		if _, err := r.DB.Exec(q); err != nil {
			r.T.Fatal(err)
		}
	}
}

// memoryWatcher counts the bytes written and samples the memory in use meanwhile.
type memoryWatcher struct {
	bytes, samples int
	maxHeap        uint64
}

func (w *memoryWatcher) Write(b []byte) (int, error) {
	w.bytes += len(b)
	if w.bytes/(512<<10) > w.samples {
		w.samples++
		w.maxHeap = max(w.maxHeap, inUse())
	}
	return len(b), nil
}

func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// It measures memory, so it does not run in parallel.
func TestLettersAreExportedInConstantMemory(t *testing.T) {
	r := rig.New(t)
	const n = 6000
	insertLetters(r, n)
	ctx := context.Background()
	if count, err := r.As("acme", "").DeadLetters.Count(ctx, deadletter.Filter{}); err != nil || count.Total != n {
		t.Fatal(count, err)
	}
	for _, format := range deadletter.Formats {
		before, out := inUse(), &memoryWatcher{}
		done, err := r.As("acme", "").DeadLetters.Export(ctx, deadletter.Filter{}, "attempts > 0", format, out)
		if err != nil || done.Letters != n || done.Scanned != n || done.Undecided != 0 {
			t.Fatalf("%s: %+v, %v", format, done, err)
		}
		grown := int64(out.maxHeap) - int64(before)
		t.Logf("%s: %d bytes, at most %d KiB more memory in use, %d samples", format, out.bytes, grown>>10, out.samples)
		if out.samples < 4 || grown > 3<<20 { // all letters at once are 5 MiB as text
			t.Errorf("%s: %d bytes took %d bytes of memory, %d samples", format, out.bytes, grown, out.samples)
		}
	}
}

func TestEachFormatTellsTheSameLetters(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	insertLetters(r, 700)
	ctx := context.Background()
	f, where := deadletter.Filter{MinAmount: ptr(int64(100))}, `amount.minor <= 699`
	texts := map[deadletter.Format]*bytes.Buffer{}
	for _, format := range deadletter.Formats {
		texts[format] = &bytes.Buffer{}
		done, err := r.As("acme", "").DeadLetters.Export(ctx, f, where, format, texts[format])
		if err != nil || done != (deadletter.Exported{Letters: 600, Scanned: 601}) {
			t.Fatalf("%s: %+v, %v", format, done, err)
		}
	}
	var all []deadletter.Letter
	if err := json.Unmarshal(texts[deadletter.JSON].Bytes(), &all); err != nil || len(all) != 600 {
		t.Fatal(len(all), err)
	}
	if !slices.IsSortedFunc(all, func(a, b deadletter.Letter) int { return a.DeadAt.Compare(b.DeadAt) }) {
		t.Error("not in order of death")
	}
	lines := strings.Split(strings.TrimSuffix(texts[deadletter.JSONL].String(), "\n"), "\n")
	cells, err := csv.NewReader(bytes.NewReader(texts[deadletter.CSV].Bytes())).ReadAll()
	if err != nil || len(cells) != 601 || len(lines) != 600 {
		t.Fatal(len(cells), len(lines), err)
	}
	column := func(name string) int { return slices.Index(cells[0], name) }
	for i, l := range all {
		var line deadletter.Letter
		if err := json.Unmarshal([]byte(lines[i]), &line); err != nil || line.Run != l.Run {
			t.Fatalf("line %d: %s, %v", i, lines[i], err)
		}
		row := cells[i+1]
		if row[column("run_id")] != l.Run.String() || row[column("amount_minor")] != strconv.Itoa(int(l.Amount.Minor)) || row[column("amount_currency")] != "EUR" ||
			row[column("error_message")][:2] != "'=" || row[column("error_message")] != sheet.EscapeFormula(l.Error.Message) {
			t.Fatalf("line %d: %q", i, row)
		}
	}
}

// truncatingWriter accepts a number of bytes, then fails.
type truncatingWriter struct {
	bytes.Buffer
	left int
}

var errWriterClosed = errors.New("gone")

func (c *truncatingWriter) Write(b []byte) (int, error) {
	n := min(len(b), c.left)
	c.Buffer.Write(b[:n])
	if c.left -= n; n < len(b) {
		return n, errWriterClosed
	}
	return n, nil
}

// A broken connection can be detected wherever it breaks: a cut array is not valid JSON, and
// only the last line of JSONL can be cut.
func TestABrokenExportShows(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	insertLetters(r, 300)
	ctx := context.Background()
	for _, left := range []int{0, 1, 777, 50_000, 99_001} {
		for _, format := range deadletter.Formats {
			out := &truncatingWriter{left: left}
			if _, err := r.As("acme", "").DeadLetters.Export(ctx, deadletter.Filter{}, "", format, out); !errors.Is(err, errWriterClosed) {
				t.Fatalf("%s cut at %d: %v", format, left, err)
			}
			text := out.String()
			switch format {
			case deadletter.JSON:
				if json.Valid([]byte(text)) {
					t.Errorf("cut at %d it is still JSON", left)
				}
			case deadletter.JSONL:
				for line := range strings.Lines(text) {
					if strings.HasSuffix(line, "\n") && !json.Valid([]byte(line)) {
						t.Errorf("cut at %d: %.80q", left, line)
					}
				}
			}
		}
	}
}

func TestAnExportOfNothingIsWhole(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	for format, want := range map[deadletter.Format]string{deadletter.JSON: "[]\n", deadletter.JSONL: "", deadletter.CSV: "run_id,case_id,", deadletter.Excel: "\ufeffrun_id,case_id,"} {
		var out bytes.Buffer
		if done, err := r.As("acme", "").DeadLetters.Export(context.Background(), deadletter.Filter{}, "", format, &out); err != nil || done != (deadletter.Exported{}) || !strings.HasPrefix(out.String(), want) || len(out.String()) > 1000 {
			t.Errorf("%s: %q, %+v, %v", format, out.String(), done, err)
		}
	}
}

func TestAnExportThatMakesNoSenseWritesNothing(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	for field, ask := range map[string]func(out io.Writer) error{
		"format": func(out io.Writer) error {
			_, err := r.As("acme", "").DeadLetters.Export(context.Background(), deadletter.Filter{}, "", "xls", out)
			return err
		},
		"where": func(out io.Writer) error {
			_, err := r.As("acme", "").DeadLetters.Export(context.Background(), deadletter.Filter{}, "held ==", deadletter.CSV, out)
			return err
		},
		"tenant": func(out io.Writer) error {
			_, err := r.As("", "").DeadLetters.Export(context.Background(), deadletter.Filter{}, "", deadletter.CSV, out)
			return err
		},
		"queue": func(out io.Writer) error {
			_, err := r.As("acme", "").DeadLetters.Export(context.Background(), deadletter.Filter{Queue: "\x00"}, "", deadletter.CSV, out)
			return err
		},
	} {
		var out bytes.Buffer
		var refused *refusal.FieldError
		if err := ask(&out); !errors.As(err, &refused) || refused.Field != field || out.Len() > 0 {
			t.Errorf("%s: %v, %q written", field, err, out.String())
		}
	}
}

// A letter that this version can't read prevents neither listing, exporting nor purging the
// others, and it is counted.
func TestOneUnreadableLetterStopsNoOther(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	insertLetters(r, 5)
	ctx := context.Background()
	if _, err := r.DB.Exec(`UPDATE recourse.runs SET policy = 'of a newer program' WHERE retry_key = 'txr_3:release'`); err != nil {
		t.Fatal(err)
	}
	if n := len(r.Letters(deadletter.Filter{})); n != 5 {
		t.Errorf("%d letters are listed", n)
	}
	if done, err := r.As("acme", "").DeadLetters.Export(ctx, deadletter.Filter{}, `held == false`, deadletter.JSONL, io.Discard); err != nil || done.Letters != 5 {
		t.Errorf("%+v, %v", done, err)
	}
	if a, err := r.As("acme", "").DeadLetters.Analyze(ctx, report.Query{}); err != nil || a.Open != 5 || a.AtRisk["EUR"] != settlement.SumOf(15) {
		t.Errorf("%+v, %v", a, err)
	}
	r.MustPurge(deadletter.Filter{Family: postadjudication.Family}, 4)
	if left := r.Letters(deadletter.Filter{}); len(left) != 1 || left[0].Transaction != "txr_3" {
		t.Errorf("%+v", left)
	}
}
