package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
)

// Habit is how the payers of a principal answer, beside that they pay.
type Habit string

// The habits. A payer that lies does so about the orders that it was given, and only so that the server can know.
const (
	Mixed         Habit = "mixed"         // truly, in every manner in which an honest worker may
	Contradicting Habit = "contradicting" // contradicts what it has told
	Meddling      Habit = "meddling"      // also answers for orders that another principal was given
	Tardy         Habit = "tardy"         // only after its lease
)

// Habits are all of them.
func Habits() []Habit { return []Habit{Mixed, Contradicting, Meddling, Tardy} }

// Payer is a principal that pays, with its key.
type Payer struct {
	Principal, Token string
	Habit            Habit
}

// Classes of what is reported.
const (
	Executed    = "executed"
	NotExecuted = "not_executed"
	Unclear     = "unknown"
)

// Report is an answer of a payer for an order, or with Given that it was given the order. It is written before the answer is sent,
// and once more with the reply.
type Report struct {
	Given     bool   `json:"given,omitempty"`
	Principal string `json:"principal"`
	Worker    string `json:"worker"` // under which it answers
	Order     string `json:"order"`
	Key       string `json:"key"` // operation key
	Attempt   int    `json:"attempt"`
	OfOther   bool   `json:"of_other,omitempty"` // another principal was given the order
	False     bool   `json:"false,omitempty"`    // nothing was paid, or not that
	Denies    bool   `json:"denies,omitempty"`   // the same attempt reported a payment before, which was accepted
	Class     string `json:"class,omitempty"`
	Moved     int64  `json:"moved,omitempty"`
	Reference string `json:"reference,omitempty"`
	Status    int    `json:"status,omitempty"` // of the reply; 0: none
	Rule      string `json:"rule,omitempty"`   // in it
}

// Recorded reports that the server took the answer as one of an attempt of the payer.
func (t Report) Recorded() bool {
	return !t.OfOther && (t.Status == http.StatusOK || t.Status == http.StatusConflict)
}

func (l *Ledger) keepReport(w http.ResponseWriter, r *http.Request) {
	var t Report
	if err := json.NewDecoder(r.Body).Decode(&t); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	l.mu.Lock()
	l.reports = append(l.reports, t)
	err := l.copy.Encode(t)
	l.mu.Unlock()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// others answers with the newest orders of other principals.
func (l *Ledger) others(w http.ResponseWriter, r *http.Request) {
	principal, found := r.URL.Query().Get("principal"), []Report{}
	l.mu.Lock()
	for i := len(l.reports) - 1; i >= 0 && len(found) < manyRecent; i-- {
		if t := l.reports[i]; t.Given && t.Principal != principal {
			found = append(found, t)
		}
	}
	l.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(found) // the payer may be gone
}

// Reports returns what the payers have reported, the oldest first.
func (l *Ledger) Reports() []Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Report{}, l.reports...)
}

func (p *payer) post(ctx context.Context, t Report) error {
	if r := p.ledger.send(ctx, http.MethodPost, "/reports", t); !r.ok() {
		return fmt.Errorf("remote: the ledger did not take a report: %s", r)
	}
	return nil
}

// contradicting pays and tells it truly, and then contradicts itself; or tells of a payment before it makes another one.
func (p *payer) contradicting(ctx context.Context, o order) error {
	lie := outcome{refused: true}
	if p.rng.IntN(4) == 0 {
		lie.refused, lie.paid, lie.false = false, o.invented(), true
		accepted, err := p.report(ctx, o, p.name, lie, false)
		if err != nil {
			return err
		}
		end := p.execute(ctx, o)
		end.denies = accepted
		_, err = p.report(ctx, o, p.name, end, false)
		return err
	}
	end := p.execute(ctx, o)
	accepted, err := p.report(ctx, o, p.name, end, false)
	if err != nil || end.paid == nil {
		return err
	}
	other := *end.paid
	switch p.rng.IntN(4) {
	case 0:
		lie.refused, lie.paid = false, &other
		other.Moved.Minor--
	case 1:
		lie.refused, lie.paid = false, &other
		other.Reference += "-other"
	case 2:
		return nil // it is honest for once
	}
	lie.false, lie.denies = true, accepted
	_, err = p.report(ctx, o, p.name, lie, false)
	return err
}

// invented is a payment that was not made, of the sum that an order asks for.
func (o order) invented() *paid {
	var request struct {
		Amount struct {
			Minor    int64  `json:"minor"`
			Currency string `json:"currency"`
		} `json:"amount"`
	}
	_ = json.Unmarshal(o.Args[0], &request) // it has the digest of its order
	said := &paid{Reference: "invented-" + o.ID}
	said.Moved = request.Amount
	return said
}

// meddle answers for an order that another principal was given, sometimes under the name of its worker.
func (p *payer) meddle(ctx context.Context) error {
	r := p.ledger.send(ctx, http.MethodGet, "/others?principal="+url.QueryEscape(p.principal), nil)
	var others []Report
	if err := json.Unmarshal(r.body, &others); err != nil || !r.ok() {
		return fmt.Errorf("remote: the ledger answered %s", r)
	}
	if len(others) == 0 {
		return nil
	}
	t := others[p.rng.IntN(len(others))]
	var o order
	o.ID, o.Meta.OperationKey, o.Meta.Attempt = t.Order, t.Key, t.Attempt
	end, as := outcome{refused: true, false: true, ofOther: true}, p.name
	if p.rng.IntN(2) == 0 {
		end.refused, end.paid = false, &paid{Reference: "meddled"}
		end.paid.Moved.Minor, end.paid.Moved.Currency = 1, "EUR"
	}
	if p.rng.IntN(2) == 0 {
		as = t.Worker
	}
	_, err := p.report(ctx, o, as, end, p.rng.IntN(3) == 0)
	return err
}
