package access_test

import (
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/access"
)

func TestPrincipalsHaveOnePatternAndNoneIsTheMachines(t *testing.T) {
	t.Parallel()
	const neither, actor, both = 0, 1, 2
	for text, want := range map[string]int{
		"user:ada": both, "service:desk-2": both, "user:ada.b_c+d@example.org": both, "user:" + strings.Repeat("a", 100): both,
		"root": actor, "ada": actor, "ada@example.org": actor,
		"": neither, "user:": neither, ":ada": neither, "User:ada": neither, " user:ada": neither, "user:ada\n": neither, "user:a b": neither, "user:" + strings.Repeat("a", 101): neither,
		"user:ada:b": neither, "user:o'neil": neither, "system:retention": neither, "worker:vm": neither, "lookup:vm": neither, "observer:vm": neither, "breaker:vm": neither, "system:bulk": neither, "system:escrow": neither, "rule:nightly": neither, "local": neither,
		"\u202euser:ada": neither, "user:\u009b31mada": neither, "user:ada\u200b": neither, "user:\u0430da": neither, "a b": neither,
	} {
		if got := access.CheckPrincipal(text) == nil; got != (want == both) {
			t.Errorf("principal %q: %t", text, got)
		}
		if got := access.CheckActor(text) == nil; got != (want != neither) {
			t.Errorf("actor %q: %t", text, got)
		}
	}
}
