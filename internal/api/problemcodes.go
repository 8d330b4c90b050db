package api

import (
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

const secondPersonRequired = "second_person_required"

// The codes of problems that many operations answer with.
var (
	// anyCodes are those of the door, and of what any operation may meet.
	anyCodes = []string{
		"header_doubled", "key_missing", "key_invalid", "key_expired", "key_revoked", "tenant_mismatch", "tenant_invalid", "tenant_missing", "host_unknown",
		"cross_origin", "too_many_failures", "role_missing", "malformed", "invalid", "not_found", "busy", "unavailable", "internal",
	}
	// readCodes are those of operations that take a slot of the reads of the tenant.
	readCodes = []string{"too_many_answers"}
	// bodyCodes are those of operations that take a body.
	bodyCodes = []string{"too_large", "too_slow", "unsupported_media_type", door.EncodingUnsupported, "unrecordable", "unreadable", "references_unreadable"}
	// keyedCodes are those of operations that take an Idempotency-Key.
	keyedCodes = []string{"idempotency_mismatch", "idempotency_in_progress"}
	// gateCodes are those of the gates of actions on letters, runs and cases.
	gateCodes = texts(
		refusal.GateNotALetter, refusal.GateNotOpen, refusal.GateReconcileFirst, refusal.GateCallOutstanding, refusal.GateContradictsRecord,
		refusal.GateCaseEnded, refusal.GateNotSettlement, refusal.GateHeld, refusal.GatePaidUnderOlderKey, refusal.GateNotHeld, refusal.GateRequestAltered,
		refusal.GateFamilyNotServed, refusal.GateLive, refusal.GateNotLive, refusal.GateNothingReserved, refusal.GateRunning, refusal.GateAnotherPayer,
		refusal.GateNotTheHolder, refusal.GateExceedsPaid, refusal.GateReferenceUsed, refusal.GateUniqueJobLive, refusal.GateNoExecutor,
	)
	submitCodes = texts(
		postadjudication.DeadLettered, postadjudication.ReconcileFirst, postadjudication.RetryKeyMismatch, postadjudication.Cancelled, postadjudication.CaseEnded,
		postadjudication.StaleGeneration, postadjudication.Conflicting, postadjudication.TargetChanged, postadjudication.ExceedsHeld, postadjudication.EscrowMismatch,
	)
	planCodes = []string{"bulk_state", "plan_stale", secondPersonRequired}
)

// problemCodes are the codes of the problems that an operation answers with beside those that many do.
var problemCodes = map[string][]string{
	"submit":                  submitCodes,
	"submit-batch":            {"too_many_batches"},
	"cancel-run":              slices.Concat(gateCodes, []string{"ended", "target_unknown"}),
	"open-breaker":            {"breaker_not_open"},
	"release-breaker":         {"breaker_not_open"},
	"plan-bulk":               slices.Concat(gateCodes, []string{"nothing_selected", "too_many_conditions", "beyond_reach", "target_unknown"}),
	"plan-free":               slices.Concat(gateCodes, []string{"nothing_selected"}),
	"plan-move":               slices.Concat(gateCodes, []string{"nothing_selected", "target_unknown"}),
	"plan-returns":            slices.Concat(gateCodes, []string{"nothing_selected", "too_many_batches"}),
	"cancel-bulk":             planCodes,
	"pause-bulk":              planCodes,
	"refuse-bulk":             planCodes,
	"resume-bulk":             planCodes,
	"run-bulk":                planCodes,
	"fork-dead-letter":        slices.Concat(gateCodes, []string{"beyond_reach", "target_unknown"}),
	"retry-job":               slices.Concat(gateCodes, []string{"beyond_reach", "target_unknown"}),
	"hold-dead-letter":        gateCodes,
	"mark-dead-letter":        gateCodes,
	"release-dead-letter":     gateCodes,
	"reconcile-dead-letter":   slices.Concat(gateCodes, []string{secondPersonRequired, "target_unknown", "too_many_streams"}),
	"search-dead-letters":     {"too_many_conditions", "too_many_streams"},
	"export-dead-letters":     {"too_many_conditions", "too_many_streams"},
	"list-events":             {"too_many_streams"},
	"stream-events":           {"too_many_streams"},
	"create-key":              {"key_needed", "beyond_reach", "duties_mixed"},
	"rotate-key":              {"key_needed", "beyond_reach", "duties_mixed", "other_principal"},
	"set-people":              {secondPersonRequired},
	"list-policies":           {"unknown_family"},
	"set-policy":              {"policy_version", "unknown_family"},
	"reset-policy":            {"policy_version", "unknown_family"},
	"policy-history":          {"unknown_family"},
	"set-rule":                {"rule_version", "too_many_rules", "beyond_reach"},
	"delete-rule":             {"rule_version"},
	"try-rule":                {"no_executor", "target_unknown", "too_many_conditions", "beyond_reach"},
	"create-webhook":          {"too_many_webhooks", "no_webhook_key"},
	"pause-webhook":           {"no_webhook_key"},
	"resume-webhook":          {"no_webhook_key"},
	"rotate-webhook":          {"no_webhook_key"},
	"replay-webhook":          {"no_webhook_key"},
	"test-webhook":            {"no_webhook_key", "too_many_streams"},
	"analyze-dead-letters":    {"too_many_conditions"},
	"list-dead-letter-groups": {"too_many_conditions"},
}

// codes returns the codes of the problems that an operation answers with, in alphabetical order.
func (o operation) codes() []string {
	out := slices.Concat(anyCodes, readCodes, problemCodes[o.id])
	if o.method != http.MethodGet {
		out = append(out, bodyCodes...)
		if !o.repeatable {
			out = append(out, keyedCodes...)
		}
		if o.maxBody > door.DefaultMaxBody {
			out = append(out, "too_many_batches")
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// problemWithCodes returns the schema of a problem that has one of some codes.
func problemWithCodes(problem *huma.Schema, codes []string) *huma.Schema {
	enum := make([]any, len(codes))
	for i, code := range codes {
		enum[i] = code
	}
	return &huma.Schema{AllOf: []*huma.Schema{problem, {
		Type: huma.TypeObject, Required: []string{"code"},
		Properties: map[string]*huma.Schema{"code": {Type: huma.TypeString, Enum: enum, Description: "For programs; a later version may have more codes"}},
	}}}
}

func texts[T ~string](of ...T) (out []string) {
	for _, one := range of {
		out = append(out, string(one))
	}
	return out
}
