package app

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/retention"
)

func TestRetentionIsReadAsPeopleWriteIt(t *testing.T) {
	t.Parallel()
	var o Options
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.Bind(f)
	folder := filepath.Join(t.TempDir(), "archive")
	if err := f.Parse([]string{"--retain", "settlement=P2Y", "--retain", "settlement:1=P30D/10000", "--archive", folder}); err != nil {
		t.Fatal(err)
	}
	var c postadjudication.Config
	if err := o.Retention.apply(&c); err != nil {
		t.Fatal(err)
	}
	want := []retention.Rule{{Family: "settlement", MaxAge: "P2Y"}, {Family: "settlement", Queue: "settlement:1", MaxAge: "P30D", MaxCount: 10000}}
	if !reflect.DeepEqual(c.Retention, want) || c.Archive == nil {
		t.Errorf("%+v", c)
	}
}

func TestRetentionThatCannotBeReadIsAWrongOption(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "P180D", "settlement", "settlement=", "=P1D", "settlement=P1D/", "settlement=P1D/0", "settlement=P1D/many", "settlement=P1X", "settlement=1d", "settlement=P0D", "settlement=P300Y", "settlement=P1X/10", "settlement:x=P1D", "settlement:=P1D"} {
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
