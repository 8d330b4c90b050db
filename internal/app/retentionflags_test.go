package app

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/retention"
)

func TestRetentionIsReadAsPeopleWriteIt(t *testing.T) {
	t.Parallel()
	var o Options
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.Bind(f)
	folder := filepath.Join(t.TempDir(), "archive")
	if err := f.Parse([]string{"--retain", "settlement=P2Y", "--retain", "settlement:1=P30D/10000", "--retain", "ojs=P1D", "--retain", "ojs:mail.send=P7D/5", "--retain", "ojs:a=P7D/5/delete", "--retain", "ojs:b=P7D/archive", "--archive", folder}); err != nil {
		t.Fatal(err)
	}
	var c postadjudication.Config
	if err := o.Retention.apply(&c); err != nil {
		t.Fatal(err)
	}
	want := []retention.Rule{{Family: "settlement", MaxAge: "P2Y"}, {Family: "settlement", Queue: "settlement:1", MaxAge: "P30D", MaxCount: 10000},
		{Family: "ojs", MaxAge: "P1D"}, {Family: "ojs", Queue: "mail.send", MaxAge: "P7D", MaxCount: 5},
		{Family: "ojs", Queue: "a", MaxAge: "P7D", MaxCount: 5, Pruning: retention.Delete}, {Family: "ojs", Queue: "b", MaxAge: "P7D", Pruning: retention.ToArchive}}
	if !reflect.DeepEqual(c.Retention, want) || c.Archive == nil {
		t.Errorf("%+v", c)
	}
}

func TestRetentionThatCannotBeReadIsAWrongOption(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "P180D", "settlement", "settlement=", "=P1D", "settlement=P1D/", "settlement=P1D/0", "settlement=P1D/many", "settlement=P1X", "settlement=1d", "settlement=P0D", "settlement=P300Y", "settlement=P1X/10", "settlement:x=P1D", "settlement:=P1D", "ojs:=P1D", "settlement=P1D/delete", "ojs:a=P1D/drop", "ojs:a=P1D/delete/5"} {
		o := validOptions()
		o.Retention.Rules = []string{text}
		if err := o.check(); !errors.Is(err, ErrOptions) {
			t.Errorf("%q: %v", text, err)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o := validOptions()
	o.Retention.Archive = filepath.Join(file, "x")
	if err := o.Retention.apply(&postadjudication.Config{}); !errors.Is(err, ErrOptions) {
		t.Errorf("%v", err)
	}
}

func TestTheDaysThatOpenWOPPromises(t *testing.T) {
	t.Parallel()
	day := deadletter.Duration(24 * time.Hour)
	settlements := []string{"settlement"}
	for name, c := range map[string]struct {
		rules []retention.Effective
		days  int // 0: refused
	}{
		"one rule":               {[]retention.Effective{{Family: "settlement", MaxAge: 180 * day}}, 180},
		"the shortest counts":    {[]retention.Effective{{Family: "settlement", MaxAge: 180 * day}, {Family: "settlement", Queue: "settlement:1", MaxAge: 30*day + day/2}}, 30},
		"others do not count":    {[]retention.Effective{{Family: "settlement", MaxAge: 180 * day}, {Family: "ojs", MaxAge: day, MaxCount: 10}}, 180},
		"by number":              {[]retention.Effective{{Family: "settlement", MaxAge: 180 * day, MaxCount: 10}}, 0},
		"less than a day":        {[]retention.Effective{{Family: "settlement", MaxAge: day - 1}}, 0},
		"a day, and not an hour": {[]retention.Effective{{Family: "settlement", MaxAge: day}}, 1},
	} {
		days, err := retentionDays(c.rules, settlements)
		if days != c.days || (err != nil) != (c.days == 0) || err != nil && !errors.Is(err, ErrOptions) {
			t.Errorf("%s: %d, %v", name, days, err)
		}
	}
}
