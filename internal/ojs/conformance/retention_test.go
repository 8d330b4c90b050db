package conformance_test

import "testing"

// Section 10: retention. Its limits are 180 days and what the statistics say of a queue, and the clock is moved.

func TestDLQ_004_ALetterIsKeptForItsTimeAndNotLonger(t *testing.T) {
	reset(t)
	q := newQueue(t)
	old := q.dead().text("id")
	advance(t, "P1D")
	young := q.dead().text("id")
	advance(t, "P178DT23H")
	letter(t, old)
	advance(t, "PT2H")
	noLetter(t, old)
	get(t, root+"/jobs/"+old).refused(404, "not_found")
	letter(t, young)
	q.refuses(409, "duplicate", q.body(members{"id": old}))
	advance(t, "P1D")
	noLetter(t, young)
}

func TestDLQ_004_TheClockOfALetterBeginsAnewWithItsDeath(t *testing.T) {
	reset(t)
	q := newQueue(t)
	id := q.dead().text("id")
	advance(t, "P170D")
	retry(t, id)
	q.fail()
	advance(t, "P170D")
	letter(t, id)
	advance(t, "P11D")
	noLetter(t, id)
}

func TestDLQ_005_ARoundOfPruningIsOneEvent(t *testing.T) {
	reset(t)
	q := newQueue(t)
	q.deadMany(3)
	advance(t, "P181D")
	if list := listed(t, ""); len(list) != 0 {
		t.Errorf("%v are left", ids(list))
	}
	var pruned []object
	wait(t, "the event can be read", func() bool {
		pruned = get(t, root+"/events?types=dead_letter.pruned").must(200).objects("events")
		return len(pruned) > 0
	})
	if len(pruned) != 1 {
		t.Fatalf("%d events", len(pruned))
	}
	pruned[0].lacks("subject")
	data := pruned[0].object("data")
	data.is("count", 3)
	data.lacks("job_id", "queue", "type", "job_type")
	advance(t, "P1D")
	if again := get(t, root+"/events?types=dead_letter.pruned").must(200).objects("events"); len(again) != 1 {
		t.Errorf("a round that pruned nothing: %d events", len(again))
	}
	get(t, letters+"/stats").must(200).object("retention").instant("next_prune_at")
}

func TestDLQ_005_WhatLivesIsNotPruned(t *testing.T) {
	reset(t)
	q := newQueue(t)
	waiting := q.enqueue().text("id")
	advance(t, "P400D")
	find(t, waiting).is("state", "available")
	q.ack(q.fetch().text("id"))
	advance(t, "P400D")
	find(t, waiting).is("state", "completed")
}

// Of a queue the newest letters are kept, as many as the statistics say. This is the last test that moves the
// clock: a later move would prune them.
func TestDLQ_004_AQueueKeepsSoManyLetters(t *testing.T) {
	reset(t)
	most := get(t, letters+"/stats").must(200).object("retention").whole("max_count")
	q, other := newQueue(t), newQueue(t)
	oldest := q.dead().text("id")
	second := q.dead().text("id")
	elsewhere := other.dead().text("id")
	q.expireMany(most - 2)
	letter(t, oldest)
	newest := q.dead().text("id")
	advance(t, "PT5M")
	noLetter(t, oldest)
	for _, id := range []string{second, newest, elsewhere} {
		letter(t, id)
	}
	get(t, letters+"?queue="+q.name+"&limit=1").must(200).is("total", most)
}

func TestRET_01_AResetEmptiesTheWorld(t *testing.T) {
	q := newQueue(t)
	id := q.dead().text("id")
	reset(t)
	get(t, root+"/jobs/"+id).refused(404, "not_found")
	get(t, letters).must(200).is("total", 0)
	get(t, root+"/events").must(200).is("events", []any{})
	q.enqueue(members{"id": id})
}
