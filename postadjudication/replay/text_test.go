package replay_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/postadjudication/replay"
)

func TestARuleIsReadFromJSON(t *testing.T) {
	t.Parallel()
	got, err := replay.Parse([]byte(`{"name":"retry-connection-errors","filter":{"error_type":"ConnectionError"},"delay":"PT1H","max_replays":3,"enabled":true}`))
	want := replay.Rule{Name: "retry-connection-errors", Enabled: true, Filter: deadletter.Filter{ErrorType: "ConnectionError"}, Delay: "PT1H", MaxReplays: 3}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for text, field := range map[string]string{
		`{"name":"a","filter":{"error_typ":"x"},"delay":"1h","max_replays":1}`:                                            "error_typ",
		`{"name":"a","filter":{"error_type":""},"delay":"1h","max_replays":1}`:                                            "error_type",
		`{"name":"a","filter":{"error_type":"x"},"delay":"1h","max_replay":1}`:                                            "max_replay",
		`{"name":"a","filter":{"error_type":"x"},"delay":"1h","max_replays":"1"}`:                                         "max_replays",
		`{"name":"a","delay":"1h","max_replays":1}`:                                                                       "filter",
		`{"name":"a","filter":null,"delay":"1h","max_replays":1}`:                                                         "filter",
		`{"name":"a","filter":{"error_type":"x"},"delay":"1h","max_replays":null}`:                                        "max_replays",
		`{"name":"a","filter":{"error_type":"x"},"mark":null,"delay":"1h","max_replays":1}`:                               "mark",
		`{"name":"a","filter":{"error_type":"x"},"delay":"soon","max_replays":1}`:                                         "delay",
		`{"name":"a","filter":{"error_type":"x"},"delay":"1h","max_replays":1}{"name":""}`:                                "rule",
		`{"name":"a","filter":{"error_type":"x"},"delay":"1h","max_replays":1,"max_replays":9}`:                           "max_replays",
		`{"name":"a","filter":{"error_type":"x"},"delay":"1h","max_replays":1,"Max_Replays":9}`:                           "Max_Replays",
		`{"name":"a","filter":{"error_type":"x","error_type":"y"},"delay":"1h","max_replays":1}`:                          "filter.error_type",
		`{"name":"a","filter":{"error_type":"x"},"delay":"1h","mark":{"reason":"x","Review":true}}`:                       "Review",
		`{"name":"a","filter":{"error_type":"x"},"delay":"1h","max_replays":1,"mark":{"Reason":"x"}}`:                     "mark.Reason",
		`{"name":"\ud800","filter":{"error_type":"x"},"delay":"1h","max_replays":1}`:                                      "name",
		`{"name":"a","filter":{"error_type":"x"},"delay":"1h","max_replays":1,"4111111111111111":1,"4111111111111111":2}`: "[card]",
		`[]`: "rule",
		``:   "rule",
	} {
		var wrong *refusal.FieldError
		if _, err := replay.Parse([]byte(text)); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestADelayIsReadInBothForms(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"PT1H": time.Hour, "P1D": 24 * time.Hour, "PT0S": 0, "0s": 0, "90m": 90 * time.Minute, "30d": 720 * time.Hour, "1h30m": 90 * time.Minute,
	} {
		if got, err := replay.ParseDelay(text); err != nil || got != want {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "P", "PT", "-1h", "1", "P999Y", "2000000h", "an hour"} {
		if got, err := replay.ParseDelay(text); err == nil {
			t.Errorf("%q: %s", text, got)
		}
	}
}

func FuzzARuleIsReadAsItIsWritten(f *testing.F) {
	for _, seed := range []string{`{"name":"again","filter":{"error_type":"http.refused"},"after":"1h","max_replays":3}`, `{"name":"a","filter":null}`, `{"name":"a","filter":{}}`, `{}`, `7`, `{"Name":"a"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		rule, err := replay.Parse(text)
		if err != nil {
			return
		}
		written, err := json.Marshal(rule)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := replay.Parse(written); err != nil || !reflect.DeepEqual(again, rule) {
			t.Errorf("%s reads as %+v, then as %+v, %v", written, rule, again, err)
		}
	})
}
