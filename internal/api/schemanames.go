package api

import (
	"reflect"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// schemaNames are the names of schemas that clients know, by the Go types whose own names say less
// without their package.
var schemaNames = map[string]string{
	"bulk.Item":             "BulkItem",
	"bulk.ItemPage":         "BulkItemPage",
	"bulk.Page":             "BulkPage",
	"bulk.Plan":             "Bulk",
	"bulk.Progress":         "BulkProgress",
	"bulk.Spec":             "BulkSpec",
	"casestatus.Case":       "CaseStatus",
	"casestatus.Filter":     "CaseFilter",
	"casestatus.Money":      "CaseMoney",
	"casestatus.Page":       "CasePage",
	"casestatus.Row":        "CaseRow",
	"deadletter.Count":      "LetterCount",
	"deadletter.Filter":     "LetterFilter",
	"deadletter.Found":      "LettersFound",
	"deadletter.Page":       "LetterPage",
	"webhookdelivery.Trial": "WebhookTrial",
	"replay.Mark":           "RuleMark",
	"replay.Trial":          "RuleTrial",
	"replay.Version":        "RuleVersion",
	"events.Data":           "EventData",
	"events.Failure":        "EventError",
	"report.Group":          "LetterGroup",
	"report.Stats":          "LetterStats",
	"retention.Effective":   "EffectiveRetention",
}

// newSchemas returns an empty registry of schemas.
func newSchemas() huma.Registry {
	r := huma.NewMapRegistry("#/components/schemas/", schemaName)
	r.RegisterTypeAlias(reflect.TypeFor[settlement.Sum](), reflect.TypeFor[sumSchema]())
	for _, id := range []reflect.Type{reflect.TypeFor[receipts.RunID](), reflect.TypeFor[receipts.CaseID](), reflect.TypeFor[uuid.UUID]()} {
		r.RegisterTypeAlias(id, reflect.TypeFor[idSchema]())
	}
	return r
}

// idSchema describes ids, so that generated clients have one type for an id wherever it stands.
type idSchema struct{}

// Schema implements huma.SchemaProvider.
func (idSchema) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Format: "uuid"}
}

// sumSchema describes settlement.Sum, which settlement itself can't.
type sumSchema struct{}

// Schema implements huma.SchemaProvider.
func (sumSchema) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Description: "Sum of minor units: a number, or beyond 9007199254740991 a text of its decimal digits, since many readers of JSON keep no larger number exact",
		OneOf:       []*huma.Schema{{Type: huma.TypeInteger, Format: "int64"}, {Type: huma.TypeString, Pattern: "^-?[0-9]+$"}},
	}
}

// schemaName names a schema after its type.
func schemaName(t reflect.Type, hint string) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if name, ok := schemaNames[t.String()]; ok {
		return name
	}
	return huma.DefaultSchemaNamer(t, hint)
}
