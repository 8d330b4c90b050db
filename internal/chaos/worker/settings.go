package worker

import (
	"encoding/json"
	"fmt"
	"time"
)

// Variable is the environment variable whose JSON Settings make a program a worker.
const Variable = "RECOURSE_CHAOS_WORKER"

// Settings of one worker.
type Settings struct {
	Name        string
	DatabaseURL string
	RedisURL    string
	EscrowURL   string

	Failpoint     string        // none when empty
	LostAfter     time.Duration // as of postadjudication.Config, and the next five
	TimeLimit     time.Duration
	Grace         time.Duration
	BaseDelay     time.Duration
	Slots         int
	ClockOffset   time.Duration // of this process from the machine's clock
	KeyLifetime   time.Duration // that the executor states
	InFlight      time.Duration // the same; longer than any fault keeps a call from the escrow service
	Handled       bool          // dead letters of settlements have a handler, which succeeds
	Archive       string        // directory that letters go into; none when empty
	Retain        string        // how long letters of settlements are kept, as ISO 8601; needs Archive
	Shards        int           // as of postadjudication.Config
	NoPlainFamily bool          // the plain family is not known
	CommandsOnly  bool          // answer commands, execute nothing
}

// Environment is the variable that makes a program such a worker.
func (s Settings) Environment() (string, error) {
	text, err := json.Marshal(s)
	return Variable + "=" + string(text), err
}

func parseSettings(text string) (Settings, error) {
	var s Settings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return s, fmt.Errorf("worker: %s: %w", Variable, err)
	}
	return s, nil
}
