// Command journey takes an adjudication from its failure to settled, by a client that oapi-codegen generates in the
// folder api beside it. It fails with the first answer that is another than the journey expects.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/google/uuid"

	"recourse.example/clients/api"
)

func main() {
	if err := journey(context.Background(), os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// clientOf returns a client that sends a key.
func clientOf(url, key string) (*api.ClientWithResponses, error) {
	return api.NewClientWithResponses(url, api.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+key)
		return nil
	}))
}

// ended returns the state of a run that has ended.
func ended(ctx context.Context, service *api.ClientWithResponses, run uuid.UUID) (string, error) {
	for {
		seen, err := service.GetRunWithResponse(ctx, run)
		if err != nil {
			return "", err
		}
		if seen.JSON200 == nil {
			return "", fmt.Errorf("%s", seen.Body)
		}
		if state := string(seen.JSON200.State); state == "succeeded" || state == "dead_lettered" {
			return state, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func journey(ctx context.Context, url, submitter, operator string) error {
	service, err := clientOf(url, submitter)
	if err != nil {
		return err
	}
	people, err := clientOf(url, operator)
	if err != nil {
		return err
	}
	sum := api.Sum{Minor: 1000, Currency: "USD"}
	made, err := service.SubmitWithResponse(ctx, api.Adjudication{
		TransactionReceiptId: "txr_go", SubmissionReceiptId: "sub_go", AdjudicationId: "adj_go", EscrowReference: "escrow_go",
		Outcome: "release", Amount: sum, Held: sum, Simulate: []string{"refused", "ok"},
	})
	if err != nil {
		return err
	}
	if made.JSON201 == nil {
		return fmt.Errorf("%s", made.Body)
	}
	first, err := ended(ctx, service, made.JSON201.RunId)
	if err != nil {
		return err
	}
	transaction := "txr_go"
	list, err := people.ListDeadLettersWithResponse(ctx, &api.ListDeadLettersParams{TransactionReceiptId: &transaction})
	if err != nil {
		return err
	}
	if list.JSON200 == nil || len(list.JSON200.Letters) != 1 {
		return fmt.Errorf("%s", list.Body)
	}
	letter, once := list.JSON200.Letters[0].RunId, "go-1"
	fork, err := people.ForkDeadLetterWithResponse(ctx, letter, &api.ForkDeadLetterParams{IdempotencyKey: &once}, api.ForkInputBody{Reason: "the account was mended"})
	if err != nil {
		return err
	}
	if fork.JSON201 == nil {
		return fmt.Errorf("%s", fork.Body)
	}
	second, err := ended(ctx, service, fork.JSON201.RunId)
	if err != nil {
		return err
	}
	again, err := people.ForkDeadLetterWithResponse(ctx, letter, nil, api.ForkInputBody{Reason: "again"})
	if err != nil {
		return err
	}
	if again.ApplicationproblemJSONDefault == nil {
		return fmt.Errorf("%s", again.Body)
	}
	verify := true
	trail, err := people.ListReceiptsWithResponse(ctx, fork.JSON201.CaseId, &api.ListReceiptsParams{Verify: &verify})
	if err != nil {
		return err
	}
	if trail.JSON200 == nil || trail.JSON200.Verification == nil {
		return fmt.Errorf("%s", trail.Body)
	}
	var subtypes []string
	for _, one := range trail.JSON200.Receipts {
		subtypes = append(subtypes, string(one.Subtype))
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"states": []string{first, second}, "parent": fork.JSON201.ParentRunId == made.JSON201.RunId,
		"refused": again.ApplicationproblemJSONDefault.Code, "receipts": subtypes, "verified": trail.JSON200.Verification.Ok,
	})
}
