package conformance_test

import (
	"testing"
	"time"
)

// Sections 5 and 7: retry policies.

func TestRTP_01_Defaults(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.enqueue().text("id")
	job := find(t, id)
	job.is("max_attempts", 3)
	answer := q.fail()
	answer.is("state", "retryable")
	if ms := answer.whole("retry_delay_ms"); ms < 500 || ms > 1500 { // PT1S, with jitter
		t.Errorf("retry_delay_ms %d", ms)
	}
}

func TestRTP_02_PoliciesThatAreRefused(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	for field, policy := range map[string][]string{
		"max_attempts":         {`{"max_attempts":-1}`, `{"max_attempts":1.5}`, `{"max_attempts":"3"}`, `{"max_attempts":null}`},
		"initial_interval":     {`{"initial_interval":"PT0S"}`, `{"initial_interval":"-PT1S"}`, `{"initial_interval":"P"}`, `{"initial_interval":"PT"}`, `{"initial_interval":"P1DT"}`, `{"initial_interval":"P1W"}`, `{"initial_interval":"1s"}`, `{"initial_interval":5}`, `{"initial_interval":"PT1.5M"}`},
		"max_interval":         {`{"initial_interval":"PT10M"}`, `{"initial_interval":"PT2S","max_interval":"PT1S"}`, `{"max_interval":"x"}`},
		"backoff_coefficient":  {`{"backoff_coefficient":0.9}`, `{"backoff_coefficient":-1}`, `{"backoff_coefficient":"2"}`},
		"jitter":               {`{"jitter":1}`, `{"jitter":"true"}`},
		"non_retryable_errors": {`{"non_retryable_errors":"x"}`, `{"non_retryable_errors":[1]}`},
		"on_exhaustion":        {`{"on_exhaustion":"drop"}`, `{"on_exhaustion":1}`, `{"on_exhaustion":""}`},
		"backoff_strategy":     {`{"backoff_strategy":"fibonacci"}`},
	} {
		for _, p := range policy {
			q.refuses(422, "validation_error", q.body(members{"retry": literal(p)})).naming(field)
		}
	}
	q.refuses(422, "validation_error", q.body(members{"options": members{"retry": members{"max_attempts": -1}}})).naming("max_attempts")
}

func TestRTP_03_NoneAndOneMeanOneRun(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	for _, n := range []int{0, 1} {
		q.enqueue(members{"retry": members{"max_attempts": n}})
		q.fail().are(members{"state": "discarded", "attempt": 1})
	}
}

func TestRTP_04_Backoffs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy string
		want   []int
	}{
		"exponential": {`{"max_attempts":6,"initial_interval":"PT0.01S","backoff_coefficient":3,"max_interval":"PT0.5S","jitter":false}`, []int{10, 30, 90, 270, 500}},
		"linear":      {`{"max_attempts":5,"initial_interval":"PT0.01S","max_interval":"PT0.035S","jitter":false,"backoff_strategy":"linear"}`, []int{10, 20, 30, 35}},
		"constant":    {`{"max_attempts":4,"initial_interval":"PT0.02S","jitter":false,"backoff_type":"constant"}`, []int{20, 20, 20}},
		"in ms":       {`{"max_attempts":3,"initial_interval_ms":15,"max_interval_ms":20,"jitter":false}`, []int{15, 20}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := newQueue(t)
			q.enqueue(members{"retry": literal(c.policy)})
			for n, want := range c.want {
				answer := q.fail()
				if got := answer.whole("retry_delay_ms"); got != want {
					t.Errorf("after attempt %d: %d ms, want %d", n+1, got, want)
				}
			}
			q.fail().is("state", "discarded")
		})
	}
}

func TestRTP_05_JitterIsBetweenAHalfAndOneAndAHalfAndCapped(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	lowest, highest := 1<<30, 0
	for range 30 {
		q.enqueue(members{"retry": members{"initial_interval": "PT10S", "max_interval": "PT12S"}})
		ms := q.fail().whole("retry_delay_ms")
		lowest, highest = min(lowest, ms), max(highest, ms)
	}
	if lowest < 5000 || highest > 12_000 || lowest == highest {
		t.Errorf("from %d to %d ms", lowest, highest)
	}
}

func TestRTP_06_ErrorsThatAreNotRetried(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		listed, kind string
		discarded    bool
	}{
		"exact": {"PaymentDeclined", "PaymentDeclined", true}, "another": {"PaymentDeclined", "PaymentDeclinedLater", false}, "in another case": {"PaymentDeclined", "paymentdeclined", false},
		"below": {"http.*", "http.refused", true}, "the name itself": {"http.*", "http", false}, "beside": {"http.*", "https.refused", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := newQueue(t)
			q.enqueue(members{"retry": members{"non_retryable_errors": []string{"Other", c.listed}, "initial_interval": "PT1H", "max_interval": "PT1H"}})
			want := map[bool]string{true: "discarded", false: "retryable"}[c.discarded]
			q.fail(members{"type": c.kind}).is("state", want)
		})
	}
}

func TestRTP_07_CodesOfHandlersBeatThePolicy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code, exhaustion string
		state            string
		isLetter         bool
	}{
		{"DISCARD", "dead_letter", "discarded", false}, {"FAIL", "dead_letter", "discarded", false}, {"DEAD_LETTER", "discard", "discarded", true}, {"DEAD_LETTER", "dead_letter", "discarded", true},
		{"RETRY", "dead_letter", "retryable", false},
	} {
		t.Run(c.code+" "+c.exhaustion, func(t *testing.T) {
			t.Parallel()
			q := newQueue(t)
			id := q.enqueue(members{"retry": members{"on_exhaustion": c.exhaustion, "initial_interval": "PT1H", "max_interval": "PT1H"}}).text("id")
			q.fail(members{"code": c.code}).is("state", c.state)
			if c.isLetter {
				letter(t, id)
			} else {
				noLetter(t, id)
			}
		})
	}
	// Against the catalogue of errors, by the retry document: RETRY does not beat what is not to be retried.
	q := newQueue(t)
	q.enqueue(members{"retry": members{"non_retryable_errors": []string{"Fatal"}, "initial_interval": "PT1H", "max_interval": "PT1H"}})
	q.fail(members{"code": "RETRY", "type": "Fatal"}).is("state", "discarded")
}

func TestRTP_08_ARetryIsNeverEarlyAndSoonAfterItsTime(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.enqueue(members{"retry": members{"initial_interval": "PT0.4S", "jitter": false}})
	next := q.fail().instant("next_attempt_at")
	between(t, "the second attempt", next, q.fetch().instant("started_at"), 200*time.Millisecond)
}
