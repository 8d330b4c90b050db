package view

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/settlement"
)

// flagOfMember has the flags of the members of a filter whose names differ.
var flagOfMember = map[string]string{
	"letter": "status", "outcome_class": "class", "died_from": "since", "died_to": "until", "job_type": "type",
	"transaction_receipt_id": "transaction", "submission_receipt_id": "submission", "escrow_reference": "escrow", "dispatch_reference": "dispatch",
	"reprocess_eligible": "eligible", "manual_review_required": "review",
}

// FlagOf returns the name of the flag of a member of a filter.
func FlagOf(member string) string {
	if name, differs := flagOfMember[member]; differs {
		return name
	}
	return strings.ReplaceAll(member, "_", "-")
}

// selectedBy returns what selected the items of a plan besides its condition, in the words of the flags.
func selectedBy(asked bulk.Spec) string {
	flags := filterFlags(asked)
	if c := asked.Cases; c != nil {
		if len(c.States) > 0 {
			flags = append(flags, "--state "+shell.Quote(strings.Join(c.States, ",")))
		}
		if c.Transaction != "" {
			flags = append(flags, "--transaction "+shell.Quote(c.Transaction))
		}
		if c.WithoutLetter {
			flags = append(flags, "--without-letter")
		}
	}
	if asked.All {
		flags = append(flags, "--all")
	}
	if asked.Limit > 0 {
		flags = append(flags, "--limit "+strconv.FormatInt(asked.Limit, 10))
	}
	return strings.Join(flags, " ")
}

// filterFlags returns the flags of the members of a plan's filter. It goes through the members of the type, so that it leaves none out.
func filterFlags(asked bulk.Spec) (flags []string) {
	f := asked.Filter
	members := reflect.ValueOf(f)
	for i := range members.NumField() {
		if members.Field(i).IsZero() {
			continue
		}
		member, _, _ := strings.Cut(members.Type().Field(i).Tag.Get("json"), ",")
		name, value := "--"+FlagOf(member), ""
		switch v := members.Field(i).Interface().(type) {
		case *bool:
			if *v {
				flags = append(flags, name)
			} else {
				flags = append(flags, name+"=false")
			}
			continue
		case *int64:
			value = strconv.FormatInt(*v, 10)
			if amount := strings.HasSuffix(member, "_amount"); amount && f.Currency != "" {
				value = settlement.Money{Minor: *v, Currency: f.Currency}.String()
			} else if amount {
				name += "-minor"
			}
		case time.Time:
			value = v.UTC().Format(time.RFC3339Nano)
		default:
			value = fmt.Sprint(v)
		}
		flags = append(flags, name+" "+shell.Quote(value))
	}
	return flags
}

// marks returns what a plan marks its letters as; empty if it marks none.
func marks(asked bulk.Spec) string {
	var as []string
	for _, mark := range []struct {
		set      *bool
		yes, not string
	}{{asked.Reprocess, "worth a retry by itself", "not worth a retry by itself"}, {asked.Review, "needing review by a person", "needing no review by a person"}} {
		switch {
		case mark.set == nil:
		case *mark.set:
			as = append(as, mark.yes)
		default:
			as = append(as, mark.not)
		}
	}
	return strings.Join(as, ", ")
}
