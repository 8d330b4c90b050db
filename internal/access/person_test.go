package access

import (
	"fmt"
	"testing"
	"time"
)

// Keys by maker, and who counts as one person. "ada" has two keys: one that root made with the
// local command line, and one that she made.
func TestWhoIsTheSamePerson(t *testing.T) {
	t.Parallel()
	keys := []Key{
		{Prefix: "ada1", Principal: "ada", CreatedBy: "root"},
		{Prefix: "ada2", Principal: "ada", CreatedBy: "ada"},
		{Prefix: "ben1", Principal: "ben", CreatedBy: "root"},
		{Prefix: "ben2", Principal: "ben", CreatedBy: "ada"},
		{Prefix: "cem1", Principal: "cem", CreatedBy: "zoe"},
		{Prefix: "zoe1", Principal: "zoe", CreatedBy: "ada"},
		{Prefix: "dee1", Principal: "dee", CreatedBy: "eve"},
		{Prefix: "eve1", Principal: "eve", CreatedBy: "dee"},
		// zoe made the keys of gus and hal, and took successors of those that root made for ida and jon.
		{Prefix: "gus1", Principal: "gus", CreatedBy: "zoe"},
		{Prefix: "hal1", Principal: "hal", CreatedBy: "Zoe"},
		{Prefix: "ida1", Principal: "ida", CreatedBy: "root"},
		{Prefix: "jon1", Principal: "jon", CreatedBy: "root"},
		{Prefix: "ida2", Principal: "ida", CreatedBy: "zoe", SuccessorOf: "ida1"},
		{Prefix: "jon2", Principal: "jon", CreatedBy: "zoe", SuccessorOf: "jon1"},
		{Prefix: "jon3", Principal: "jon", CreatedBy: "jon", SuccessorOf: "jon2"},
	}
	for _, c := range []struct {
		name string
		a, b Person
		same bool
	}{
		{"one key", Person{"ada", "ada1"}, Person{"ada", "ada1"}, true},
		{"two keys of one name", Person{"ada", "ada1"}, Person{"ada", "ada2"}, true},
		{"one name without a key", Person{"ada", "ada1"}, Person{"ada", ""}, true},
		{"one name in two cases", Person{"Ada", "ada1"}, Person{"ada", "ada2"}, true},
		{"a bare name and that of a user", Person{"ada", "ada1"}, Person{"user:ADA", ""}, true},
		{"the maker's bare name, of a key that was made as a user", Person{"user:zoe", ""}, Person{"gus", "gus1"}, true},
		{"a service of the name", Person{"ada", "ada1"}, Person{"service:ada", ""}, false},
		{"keys that somebody without a key made", Person{"ada", "ada1"}, Person{"ben", "ben1"}, false},
		{"keys that a third one made", Person{"gus", "gus1"}, Person{"hal", "hal1"}, true},
		{"keys whose makers one made", Person{"ben", "ben2"}, Person{"gus", "gus1"}, true},
		{"keys whose successors a third one took", Person{"ida", "ida2"}, Person{"jon", "jon2"}, true},
		{"through the successor of a successor", Person{"ida", "ida2"}, Person{"jon", "jon3"}, true},
		{"their own keys, though a third one took a successor of one", Person{"ida", "ida1"}, Person{"jon", "jon2"}, false},
		{"their own keys, though a third one took successors of both", Person{"ida", "ida1"}, Person{"jon", "jon1"}, false},
		{"who took the successor", Person{"zoe", "zoe1"}, Person{"jon", "jon2"}, true},
		{"a key that the other made", Person{"ada", "ada1"}, Person{"ben", "ben2"}, true},
		{"made by one whose key the other made", Person{"ada", "ada1"}, Person{"cem", "cem1"}, true},
		{"the maker with the local command line", Person{"root", ""}, Person{"ben", "ben1"}, true},
		{"through the other's own key", Person{"root", ""}, Person{"cem", "cem1"}, true},
		{"no key proves a name: each key of it counts", Person{"ben", ""}, Person{"ada", "ada1"}, true},
		{"a key that is not there: each key of the name counts", Person{"ben", "gone"}, Person{"ada", "ada1"}, true},
		{"nobody knows either", Person{"fay", ""}, Person{"gil", ""}, false},
		{"makers of each other", Person{"dee", "dee1"}, Person{"eve", "eve1"}, true},
		{"makers of each other, and a stranger", Person{"dee", "dee1"}, Person{"ben", "ben1"}, false},
	} {
		if got, back := SamePerson(c.a, c.b, keys), SamePerson(c.b, c.a, keys); got != c.same || back != c.same {
			t.Errorf("%s: %v, and with the arguments swapped %v", c.name, got, back)
		}
	}
}

// An admin may make keys one after the other, each with the one before. Each is looked at a few times only.
func TestALongRowOfMakersIsReadFast(t *testing.T) {
	t.Parallel()
	const number, most = 16_000, 3 * time.Second // if each maker read all keys: 12 s
	name := func(i int) string { return fmt.Sprintf("user:a-long-name-of-a-person.%d", i) }
	keys := make([]Key, number)
	for i := range keys {
		keys[i] = Key{Prefix: fmt.Sprint(i), Principal: name(i), CreatedBy: name(i - 1)}
	}
	last := Person{name(number - 1), fmt.Sprint(number - 1)}
	begin := time.Now()
	if !SamePerson(last, Person{name(0), ""}, keys) || SamePerson(last, Person{"user:stranger", ""}, keys) {
		t.Error("the maker is not found, or a stranger is one")
	}
	if took := time.Since(begin); took > most {
		t.Errorf("%d keys took %s", number, took)
	}
}

func TestProgramsAreNoPersons(t *testing.T) {
	t.Parallel()
	for principal, is := range map[string]bool{"service:escrow": true, "rule:nightly": true, "system:bulk": true, "robot:ada": true, "bot:nightly": true, "app:desk": true, "user:ada": false, "ada": false, "services": false, "": false} {
		if IsProgram(principal) != is {
			t.Errorf("%q: %v", principal, !is)
		}
	}
}
