package access

import (
	"fmt"
	"path"
	"slices"
)

// MaxQueues bounds the queues of a key, MaxQueue the bytes of each.
const (
	MaxQueues = 50
	MaxQueue  = 128
)

// CheckQueues returns an error if a key can't have the queues. Each is the name of a queue, in which * stands
// for any text.
func CheckQueues(queues []string, roles []Role) error {
	if len(queues) > MaxQueues {
		return fmt.Errorf("must be at most %d", MaxQueues)
	}
	if len(queues) > 0 && !slices.Contains(roles, Worker) {
		return fmt.Errorf("are for the role %s", Worker)
	}
	for i, q := range queues {
		if _, err := path.Match(q, ""); err != nil || q == "" || len(q) > MaxQueue || slices.ContainsFunc([]byte(q), func(c byte) bool { return c <= ' ' || c > '~' || c == '/' || c == ',' }) {
			return fmt.Errorf("%.40q is no name of a queue: want 1 to %d printable characters of ASCII without blank, comma and slash; * stands for any text", q, MaxQueue)
		}
		if slices.Contains(queues[:i], q) {
			return fmt.Errorf("%s is given twice", q)
		}
	}
	return nil
}

// Names reports whether the queues of a key name a queue.
func (k *Key) Names(queue string) bool {
	return slices.ContainsFunc(k.Queues, func(pattern string) bool {
		matches, err := path.Match(pattern, queue)
		return err == nil && matches
	})
}

// MayFetch reports whether a worker with the key fetches from a queue. A key without queues fetches from all
// that do not pay: adjudications are fetched by who was made for it.
func (k *Key) MayFetch(queue string, pays bool) bool {
	if pays {
		return k.Names(queue) && len(k.decides()) == 0
	}
	return len(k.Queues) == 0 || k.Names(queue)
}

// UngrantableQueues returns the given queues that are none of the own ones: the maker of a key can't grant
// them, or it could act through the new key. Nothing given stands for all queues that do not pay. Keys of payment
// queues are made by recourse keys create on the local command line, since no admin has one.
func UngrantableQueues(own, given []string) (beyond []string) {
	if len(given) == 0 && len(own) > 0 {
		return []string{"*"}
	}
	for _, q := range given {
		if !slices.Contains(own, q) {
			beyond = append(beyond, q)
		}
	}
	return beyond
}

// deciding are the roles that decide about money. Who pays has none of them in the same tenant: one person could
// hand an adjudication over, or free its money, and say that it was paid.
var deciding = []Role{Submitter, Operator, Approver, Admin}

// decides returns the roles of the key that decide about money.
func (k *Key) decides() (roles []Role) {
	for _, r := range k.Roles {
		if slices.Contains(deciding, r) {
			roles = append(roles, r)
		}
	}
	return roles
}

// pays returns a payment queue that a worker with the key fetches from; empty if there is none.
func (k *Key) pays(paymentQueues []string) string {
	if i := slices.IndexFunc(paymentQueues, k.Names); i >= 0 && slices.Contains(k.Roles, Worker) {
		return paymentQueues[i]
	}
	return ""
}

// DutiesError means that one principal pays and decides.
type DutiesError struct {
	Tenant    string
	Principal string
	Queue     string // from which it fetches adjudications
	Roles     []Role // by which it decides
	Key       string // prefix of the other key of the two; of the key itself if it has both duties; empty if that was not made
}

func (e *DutiesError) Error() string {
	text := fmt.Sprintf("%s of %s fetches adjudications from the payment queue %s, and is %s: who pays decides nothing", e.Principal, e.Tenant, e.Queue, JoinRoles(e.Roles))
	if e.Key != "" {
		text += " (see key " + e.Key + ")"
	}
	return text
}

// CheckDuties returns a *DutiesError if the principal of a key both pays and decides in its tenant, by this key or
// by this one and another. others are keys of the tenant; those that have ended count for nothing.
func CheckDuties(k *Key, others []Key, paymentQueues []string) error {
	for i := -1; i < len(others); i++ {
		other := k
		if i >= 0 {
			other = &others[i]
		}
		if !SamePrincipal(other.Principal, k.Principal) {
			continue
		}
		for _, pair := range [][2]*Key{{k, other}, {other, k}} {
			queue, roles := pair[0].pays(paymentQueues), pair[1].decides()
			if queue != "" && len(roles) > 0 {
				return &DutiesError{Tenant: k.Tenant, Principal: k.Principal, Queue: queue, Roles: roles, Key: other.Prefix}
			}
		}
	}
	return nil
}
