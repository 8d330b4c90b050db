package receipts

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"time"
)

// Broken says where the evidence of a case does not hold, and why. Seq is the sequence of the receipt that
// should stand there, whatever the receipt that was read says.
type Broken struct {
	Case CaseID
	Seq  int64
	What string
	// What is stored and what should be instead, where two values were compared.
	Stored, Expected string
}

func (b *Broken) Error() string {
	return fmt.Sprintf("receipts: %s.%d: %s", b.Case, b.Seq, b.What)
}

// CaseHead is the head of one case.
type CaseHead struct {
	Case CaseID
	Head
}

// Verifier checks receipts against nothing but themselves and, if given, heads noted earlier. Its zero value
// is ready to use. Only with Expected does it notice that a tail or a whole case was cut off. A case may have
// grown past its expected head, but must have passed through it.
type Verifier struct {
	Expected Heads
}

// Verify checks all receipts of one case, in their order, and returns its head: sequences from 1 without
// gaps, every link, every body canonical, every column equal to what the body says, one tenant, and the
// expected head reached. The error is a *Broken. A case without receipts has the head Genesis(c).
func (v Verifier) Verify(c CaseID, rs []Receipt) (Head, error) {
	k := v.begin(c)
	for _, r := range rs {
		if err := k.add(r); err != nil {
			return Head{}, err
		}
	}
	if err := k.end(); err != nil {
		return Head{}, err
	}
	return k.head, nil
}

// VerifyAll is Verify that continues after a break. It returns all breaks in order, the head before the first
// of them (sound), and the head that the last receipt claims (end). The two are equal where nothing is broken.
func (v Verifier) VerifyAll(c CaseID, rs []Receipt) (sound, end Head, broken []*Broken) {
	k := v.begin(c)
	sound = k.head
	for _, r := range rs {
		if err := k.add(r); err != nil {
			broken = append(broken, err)
			if r.Case == c {
				k.tenant, k.head = r.Tenant, Head{Seq: r.Seq, Link: r.Link}
			}
		}
		if len(broken) == 0 {
			sound = k.head
		}
	}
	if err := k.end(); err != nil {
		broken = append(broken, err)
	}
	return sound, k.head, broken
}

// Stream is Verify over any number of cases, ordered by case (as bytes, which is also the order of their
// text) and sequence. It keeps one case in memory. It yields each case's head when the case is complete, or one
// *Broken for it, and continues with the next; at the end a *Broken for each expected case that is missing. An
// error of rs, and a case out of order, end it.
func (v Verifier) Stream(rs iter.Seq2[Receipt, error]) iter.Seq2[CaseHead, error] {
	return func(yield func(CaseHead, error) bool) {
		missing := maps.Clone(v.Expected)
		var k *checker
		for r, err := range rs {
			if err != nil {
				yield(CaseHead{}, err)
				return
			}
			if k == nil || r.Case != k.id {
				if k != nil && !k.report(yield) {
					return
				}
				if k != nil && bytes.Compare(r.Case[:], k.id[:]) < 0 {
					what := "comes after case " + k.id.String() + ", out of order"
					yield(CaseHead{Case: r.Case}, &Broken{Case: r.Case, Seq: r.Seq, What: what})
					return
				}
				k = v.begin(r.Case)
				delete(missing, r.Case)
			}
			if k.broken == nil {
				k.broken = k.add(r)
			}
		}
		if k != nil && !k.report(yield) {
			return
		}
		for _, c := range slices.SortedFunc(maps.Keys(missing), compareCases) {
			if !v.begin(c).report(yield) {
				return
			}
		}
	}
}

func compareCases(a, b CaseID) int { return bytes.Compare(a[:], b[:]) }

// checker walks the chain of one case.
type checker struct {
	id       CaseID
	tenant   string
	head     Head
	expected *Head
	broken   *Broken // the first thing found wrong; kept by Stream
}

func (v Verifier) begin(c CaseID) *checker {
	k := &checker{id: c, head: Genesis(c)}
	if h, ok := v.Expected[c]; ok {
		k.expected = &h
	}
	return k
}

func (k *checker) add(r Receipt) *Broken {
	seq := k.head.Seq + 1
	if r.Case != k.id {
		return k.wrong(seq, "receipt of case "+r.Case.String())
	}
	if r.Seq != seq {
		return k.wrong(seq, fmt.Sprintf("sequence %d stands in its place", r.Seq)).compared(strconv.FormatInt(r.Seq, 10), strconv.FormatInt(seq, 10))
	}
	next := k.head.Next(r.Body)
	e, err := r.Entry()
	column, stored, said := "", "", ""
	if err == nil {
		column, stored, said = differing(r, e)
	}
	if r.Link != next.Link {
		what := "link does not follow from the link before, the sequence and the body"
		if column != "" {
			what += "; column " + column + " is " + stored + ", the body says " + said
		}
		return k.wrong(seq, what).compared(base64.StdEncoding.EncodeToString(r.Link[:]), base64.StdEncoding.EncodeToString(next.Link[:]))
	}
	if err != nil {
		return k.wrong(seq, err.Error())
	}
	if column != "" {
		return k.wrong(seq, "column "+column+" differs from the body").compared(stored, said)
	}
	if seq > 1 && r.Tenant != k.tenant {
		return k.wrong(seq, "tenant differs from the receipts before").compared(r.Tenant, k.tenant)
	}
	k.tenant, k.head = r.Tenant, next
	return k.passExpected()
}

// passExpected compares the link at the sequence of the expected head.
func (k *checker) passExpected() *Broken {
	if k.expected != nil && k.expected.Seq == k.head.Seq && k.expected.Link != k.head.Link {
		return k.wrong(k.head.Seq, "link differs from the expected head").compared(base64.StdEncoding.EncodeToString(k.head.Link[:]), base64.StdEncoding.EncodeToString(k.expected.Link[:]))
	}
	return nil
}

func (k *checker) end() *Broken {
	if k.expected != nil && k.head.Seq < k.expected.Seq {
		what := fmt.Sprintf("missing, and all up to the expected %d", k.expected.Seq)
		return k.wrong(k.head.Seq+1, what)
	}
	if k.head.Seq == 0 {
		return k.passExpected()
	}
	return nil
}

func (k *checker) report(yield func(CaseHead, error) bool) bool {
	if k.broken == nil {
		k.broken = k.end()
	}
	if k.broken != nil {
		return yield(CaseHead{Case: k.id}, k.broken)
	}
	return yield(CaseHead{Case: k.id, Head: k.head}, nil)
}

func (k *checker) wrong(seq int64, what string) *Broken {
	return &Broken{Case: k.id, Seq: seq, What: what}
}

func (b *Broken) compared(stored, expected string) *Broken {
	b.Stored, b.Expected = stored, expected
	return b
}

// differing returns the first column that differs from the body, with both values.
func differing(r Receipt, e Entry) (column, stored, said string) {
	switch {
	case r.Case != e.Case:
		return "case", r.Case.String(), e.Case.String()
	case r.Tenant != e.Tenant:
		return "tenant", r.Tenant, e.Tenant
	case r.Run != e.Run:
		return "run", r.Run.String(), e.Run.String()
	case r.Source != e.Subtype.Source():
		return "source", string(r.Source), string(e.Subtype.Source())
	case r.Subtype != e.Subtype:
		return "subtype", string(r.Subtype), string(e.Subtype)
	case r.Actor != e.Actor:
		return "actor", r.Actor, e.Actor
	case !r.At.Equal(e.At):
		return "at", r.At.UTC().Format(time.RFC3339Nano), e.At.UTC().Format(time.RFC3339Nano)
	}
	return "", "", ""
}
