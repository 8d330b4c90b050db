package access

import "slices"

// Action is what somebody asks for.
type Action string

// The actions.
const (
	Submit    Action = "submit"    // hand over an adjudication
	Read      Action = "read"      // one run, case or dead letter by its id; circuit breakers, policies, events
	List      Action = "list"      // many cases, dead letters and plans: lists, counts, searches, exports, analyses
	Receipts  Action = "receipts"  // the evidence, and its verification
	Queues    Action = "queues"    // asynqmon, which shows the tasks of all tenants
	Metrics   Action = "metrics"   // /metrics, which measures all tenants
	Fork      Action = "fork"      // try a dead letter again
	Reconcile Action = "reconcile" // record what became of money
	Cancel    Action = "cancel"    // end a run that waits
	Breaker   Action = "breaker"   // stop and resume the calls of an escrow service
	Hold      Action = "hold"      // keep a letter from retention, and let go of it
	Mark      Action = "mark"      // note on a letter whether it should be tried again
	BulkPlan  Action = "bulk-plan" // plan an action on many letters
	BulkRun   Action = "bulk-run"  // let a plan run
	BulkStop  Action = "bulk-stop" // pause a plan, or cancel it
	Purge     Action = "purge"     // remove letters by age and filter
	Clear     Action = "clear"     // remove all letters of a family
	Rules     Action = "rules"     // of automatic replay
	Policy    Action = "policy"    // of retries
	People    Action = "people"    // set how many it takes to state or free money by hand
	Keys      Action = "keys"      // make, list and revoke access keys
)

// permissions says who may do what; what is not in it is refused. Whoever submits can't
// fork, and reads what it has the id of, not all that the tenant has; whoever plans
// for many letters can't let the plan run, and whoever makes keys moves no money.
var permissions = map[Action][]Role{
	Submit:    {Submitter},
	Read:      {Submitter, Operator, Approver, Auditor, Admin},
	List:      {Operator, Approver, Auditor, Admin},
	Receipts:  {Operator, Approver, Auditor, Admin},
	Queues:    {Platform},
	Metrics:   {Platform},
	Fork:      {Operator},
	Reconcile: {Operator},
	Cancel:    {Operator},
	Breaker:   {Operator},
	Hold:      {Operator, Approver},
	Mark:      {Operator},
	BulkPlan:  {Operator},
	BulkRun:   {Approver},
	BulkStop:  {Operator, Approver},
	Purge:     {Approver},
	Clear:     {Approver},
	Rules:     {Admin},
	Policy:    {Admin},
	People:    {Admin},
	Keys:      {Admin},
}

// Actions lists every action, in the order of the table. The slice is the caller's.
func Actions() []Action {
	return []Action{Submit, Read, List, Receipts, Queues, Metrics, Fork, Reconcile, Cancel, Breaker, Hold, Mark, BulkPlan, BulkRun, BulkStop, Purge, Clear, Rules, Policy, People, Keys}
}

// Allowed lists the roles that may do something. The slice is the caller's.
func Allowed(a Action) []Role { return slices.Clone(permissions[a]) }

// May reports whether any of the roles may do something.
func May(roles []Role, a Action) bool {
	return slices.ContainsFunc(roles, func(r Role) bool { return slices.Contains(permissions[a], r) })
}
