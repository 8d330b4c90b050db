package replay_test

import (
	"os"
	"testing"

	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/replay"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// acting is for whom and in whose name a test acts.
type acting struct{ tenant, actor string }

// storeOf returns the store of the service's rules.
func storeOf(r *rig.Rig) *replay.Replayer { return r.As("", "").Rules.Store() }
