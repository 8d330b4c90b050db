package openwop

import (
	"net/http"
	"slices"

	"github.com/recourse-dev/recourse/internal/openwop/spec"
	"github.com/recourse-dev/recourse/postadjudication"
)

// settlement is the workflow whose inputs are an adjudication.
var settlement = spec.Workflow{
	ID: postadjudication.Family, Name: "Settlement", NodeType: "vendor.recourse.settlement.execute", MaxRetries: 2,
	Description: "Executes an adjudicated decision: releases money of an escrow, or refunds it, once. Its inputs are those of POST /api/v1/adjudications.",
	Variables: []spec.Variable{
		{Name: "transaction_receipt_id", Type: "string", Required: true}, {Name: "submission_receipt_id", Type: "string", Required: true},
		{Name: "adjudication_id", Type: "string", Required: true}, {Name: "escrow_reference", Type: "string", Required: true},
		{Name: "outcome", Type: "string", Description: "release or refund", Required: true}, {Name: "generation", Type: "number"},
		{Name: "amount", Type: "object", Description: "minor and currency", Required: true}, {Name: "held", Type: "object", Description: "minor and currency", Required: true},
		{Name: "target", Type: "string"}, {Name: "payload", Type: "object"},
	},
}

// workflow answers GET /v1/workflows/{workflowId}.
func (s *Server) workflow(w http.ResponseWriter, q request) error {
	if problems := noParameters(q); problems != nil {
		return problems
	}
	found, ok := s.workflows[q.PathValue("workflow")]
	if !ok {
		return &spec.Error{Status: http.StatusNotFound, Code: "not_found", Message: "workflow not found"}
	}
	return s.write(w, http.StatusOK, found.Definition())
}

// workflowIDs returns the ids of the workflows in order.
func (s *Server) workflowIDs() (out []string) {
	for id := range s.workflows {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}
