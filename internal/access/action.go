package access

import "slices"

// Action is what a caller wants to do.
type Action string

// The actions.
const (
	Submit    Action = "submit"    // submit an adjudication
	Work      Action = "work"      // fetch jobs, answer for them, and extend their leases
	Read      Action = "read"      // one run, case or dead letter by its id; circuit breakers, policies, rules, retention, people, events
	List      Action = "list"      // many cases, dead letters and plans: lists, counts, searches, exports, analyses
	Receipts  Action = "receipts"  // receipts, and their verification
	Queues    Action = "queues"    // asynqmon, which shows the tasks of all tenants
	Metrics   Action = "metrics"   // /metrics, which measures all tenants
	Tenants   Action = "tenants"   // counts and sums of each tenant, of all of them
	Fork      Action = "fork"      // fork a dead letter
	Reconcile Action = "reconcile" // record whether money moved
	Cancel    Action = "cancel"    // end a waiting run
	Breaker   Action = "breaker"   // stop and resume the calls of an escrow service, or the fetches from a queue
	Hold      Action = "hold"      // hold a letter against retention, and release it
	Mark      Action = "mark"      // mark a letter as worth a fork or in need of review
	Purge     Action = "purge"     // delete dead letters of jobs, which move no money
	BulkPlan  Action = "bulk-plan" // plan an action on many letters
	BulkRun   Action = "bulk-run"  // run or resume a plan
	BulkStop  Action = "bulk-stop" // pause a plan, or cancel it
	Rules     Action = "rules"     // change the rules of automatic replay
	Policy    Action = "policy"    // change retry policies
	People    Action = "people"    // set how many people it takes to state or free money by hand
	Keys      Action = "keys"      // make, list and revoke access keys
	Webhooks  Action = "webhooks"  // read, create, change and delete webhooks, whose URLs may be confidential
)

// permissions maps each action to the roles that may do it; any other role is refused. Who
// submits can't fork, and reads objects by id only. Who plans bulk actions can't run them. Who
// makes keys moves no money.
var permissions = map[Action][]Role{
	Submit:    {Submitter},
	Work:      {Worker},
	Read:      {Submitter, Operator, Approver, Auditor, Admin},
	List:      {Operator, Approver, Auditor, Admin},
	Receipts:  {Operator, Approver, Auditor, Admin},
	Queues:    {Platform},
	Metrics:   {Platform},
	Tenants:   {Platform},
	Fork:      {Operator},
	Reconcile: {Operator},
	Cancel:    {Operator},
	Breaker:   {Operator},
	Hold:      {Operator, Approver},
	Mark:      {Operator},
	Purge:     {Approver},
	BulkPlan:  {Operator},
	BulkRun:   {Approver},
	BulkStop:  {Operator, Approver},
	Rules:     {Admin},
	Policy:    {Admin},
	People:    {Admin},
	Keys:      {Admin},
	Webhooks:  {Admin},
}

// Actions returns every action in a fixed order. The caller may change the slice.
func Actions() []Action {
	return []Action{Submit, Work, Read, List, Receipts, Queues, Metrics, Tenants, Fork, Reconcile, Cancel, Breaker, Hold, Mark, Purge, BulkPlan, BulkRun, BulkStop, Rules, Policy, People, Keys, Webhooks}
}

// Allowed returns the roles that may do a. The caller may change the slice.
func Allowed(a Action) []Role { return slices.Clone(permissions[a]) }

// May reports whether any of the roles may do a.
func May(roles []Role, a Action) bool {
	return slices.ContainsFunc(roles, func(r Role) bool { return slices.Contains(permissions[a], r) })
}
