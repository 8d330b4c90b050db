package refusal

// Action names what a person does with a run, its dead letter or its case. An action is allowed, or a gate refuses it.
type Action string

// The actions.
const (
	ActionFork       Action = "fork"
	ActionRetry      Action = "retry"     // forks the newest run of the letter's lineage
	ActionReconcile  Action = "reconcile" // by a finding
	ActionLookup     Action = "lookup"    // reconciles by a lookup at the escrow service
	ActionHold       Action = "hold"
	ActionRelease    Action = "release" // ends a hold
	ActionMark       Action = "mark"
	ActionPurge      Action = "purge"      // only by a plan
	ActionFree       Action = "free"       // frees the reservation of the case; only by a plan
	ActionCancel     Action = "cancel"     // ends a live run that has moved no money
	ActionAdjudicate Action = "adjudicate" // in a higher generation
)
