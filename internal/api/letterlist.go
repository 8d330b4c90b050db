package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
)

// lettersInput has a parameter for each member of deadletter.Filter, with the same
// name. The parameters are parsed as that filter's JSON, so that a filter is valid here if it
// is valid anywhere.
type lettersInput struct {
	LetterFilter
	Sort  string `query:"sort" default:"newest" enum:"newest,oldest,highest_amount,lowest_amount,most_attempts,last_seen"`
	After string `query:"after" doc:"next of the previous page, with the same filter and sort"`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

// LetterFilter is a filter of letters in a query.
type LetterFilter struct {
	Status         string `query:"letter" enum:"open,forked,reconciled,superseded"`
	Family         string `query:"family"`
	Queue          string `query:"queue"`
	JobType        string `query:"job_type"`
	Outcome        string `query:"outcome" enum:"release,refund"`
	ReasonCode     string `query:"reason_code" doc:"Reason of the death" example:"retry_exhausted"`
	Class          string `query:"outcome_class" enum:"executed,not_executed,unknown"`
	ErrorType      string `query:"error_type" example:"http.refused"`
	ErrorText      string `query:"error_text" doc:"Substring of the last failure's message"`
	Signature      string `query:"signature" doc:"signature of a letter"`
	From           string `query:"died_from" format:"date-time" doc:"Died at or after"`
	To             string `query:"died_to" format:"date-time" doc:"Died before"`
	OlderThan      string `query:"older_than" example:"30d" doc:"Died at least this long ago"`
	YoungerThan    string `query:"younger_than" example:"36h" doc:"Died less than this long ago"`
	MinAttempts    string `query:"min_attempts" pattern:"^[0-9]{1,16}$"`
	MaxAttempts    string `query:"max_attempts" pattern:"^[0-9]{1,16}$"`
	MinAmount      string `query:"min_amount" pattern:"^[0-9]{1,16}$" doc:"In minor units"`
	MaxAmount      string `query:"max_amount" pattern:"^[0-9]{1,16}$" doc:"In minor units"`
	Currency       string `query:"currency" pattern:"^[A-Z]{3}$"`
	Transaction    string `query:"transaction_receipt_id"`
	Submission     string `query:"submission_receipt_id"`
	Escrow         string `query:"escrow_reference"`
	Dispatch       string `query:"dispatch_reference"`
	ReplayedBy     string `query:"replayed_by" doc:"Actor of the last fork"`
	MinReplays     string `query:"min_replays" pattern:"^[0-9]{1,16}$"`
	MaxReplays     string `query:"max_replays" pattern:"^[0-9]{1,16}$"`
	Held           string `query:"held" enum:"true,false"`
	Reprocess      string `query:"reprocess_eligible" enum:"true,false"`
	Review         string `query:"manual_review_required" enum:"true,false"`
	ExpiringWithin string `query:"expiring_within" example:"7d" doc:"Open, and purged by retention within this time"`
}

type lettersOutput struct {
	Body deadletter.Page
}

type countInput struct{ LetterFilter }

type countOutput struct {
	Body deadletter.Count
}

// filter parses the parameters as the JSON of a filter.
func (f LetterFilter) filter() (deadletter.Filter, error) {
	members := map[string]any{}
	v := reflect.ValueOf(f)
	for i := range v.NumField() {
		name, text := v.Type().Field(i).Tag.Get("query"), v.Field(i).String()
		if text == "" {
			continue
		}
		value, err := f.parseMember(name, text)
		if err != nil {
			return deadletter.Filter{}, err
		}
		members[name] = value
	}
	text, err := json.Marshal(members)
	if err != nil {
		return deadletter.Filter{}, err
	}
	return deadletter.ParseFilter(text)
}

// memberKinds holds the kinds of those members of deadletter.Filter that are not
// strings in JSON.
var memberKinds = func() map[string]reflect.Kind {
	out := map[string]reflect.Kind{}
	t := reflect.TypeFor[deadletter.Filter]()
	for i := range t.NumField() {
		if f := t.Field(i); f.Type.Kind() == reflect.Pointer {
			out[memberName(f)] = f.Type.Elem().Kind()
		}
	}
	return out
}()

func (LetterFilter) parseMember(name, text string) (any, error) {
	switch memberKinds[name] {
	case reflect.Int64:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, door.NewRefusal(http.StatusUnprocessableEntity, "invalid", "a parameter can't be read").WithField(name, "must be a whole number")
		}
		return n, nil
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return nil, door.NewRefusal(http.StatusUnprocessableEntity, "invalid", "a parameter can't be read").WithField(name, "must be true or false")
		}
		return b, nil
	case reflect.Invalid:
		return text, nil
	}
	return nil, fmt.Errorf("api: no parameter can have the kind of the filter member %s", name)
}

func (a letterAPI) listLetters(ctx context.Context, c door.Caller, in *lettersInput) (*lettersOutput, error) {
	filter, err := in.filter()
	if err != nil {
		return nil, err
	}
	page, err := a.service.As(c.Tenant, "").DeadLetters.List(ctx, deadletter.Query{
		Filter: filter, Sort: deadletter.Sort(in.Sort), After: in.After, Limit: in.Limit,
	})
	return &lettersOutput{page}, err
}

func (a letterAPI) countLetters(ctx context.Context, c door.Caller, in *countInput) (*countOutput, error) {
	filter, err := in.filter()
	if err != nil {
		return nil, err
	}
	count, err := a.service.As(c.Tenant, "").DeadLetters.Count(ctx, filter)
	return &countOutput{count}, err
}

// memberName returns the JSON name of a member.
func memberName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}
