package strictjson_test

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/strictjson"
)

func TestCheckTakesWhatEveryReaderTakesAlike(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`null`, ` true `, `false`, `0`, `-0`, `1.5e+3`, `1E-9`, `""`, `[]`, `{}`, "\t[1,\r\n2]\n", `{"a":{"a":{"a":1}},"b":[{"a":1},{"a":2}]}`,
		`{"a":1,"A":2}`, `"\ud83d\ude42"`, `"\uD83D\uDE42 \\ud800 \"\/\b\f\n\r\t"`, `"支払い 🙂"`, `{"":1}`, "\"\u007f\u2028\"",
		`{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8,"i":9,"j":10,"k":11,"l":12,"m":13,"n":14,"o":15,"p":16,"q":17,"r":18}`,
		strings.Repeat("[", 1000) + strings.Repeat("]", 1000),
	} {
		if err := strictjson.Check([]byte(text)); err != nil {
			t.Errorf("%.60s: %v", text, err)
		}
	}
}

func TestCheckNamesWhatIsAmbiguous(t *testing.T) {
	t.Parallel()
	many := `{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8,"i":9,"j":10,"k":11,"l":12,"m":13,"n":14,"o":15,"p":16,"q":17,`
	for name, tc := range map[string]struct{ text, field, problem string }{
		"twice":                  {`{"a":1,"b":2,"a":1}`, "a", "given twice"},
		"twice by an escape":     {`{"ab":1,"\u0061b":2}`, "ab", "given twice"},
		"twice deep":             {`{"a":{"b":[1,[{"c":1,"c":2}]]}}`, "a.b.c", "given twice"},
		"twice behind an object": {`{"a":{"b":1},"b":2,"b":3}`, "b", "given twice"},
		"twice without a name":   {`{"x":{"":1,"":2}}`, `x.""`, "given twice"},
		"first of many twice":    {many + `"a":2}`, "a", "given twice"},
		"last of many twice":     {many + `"q":2}`, "q", "given twice"},
		"late one of many":       {many + `"r":1,"r":2}`, "r", "given twice"},
		"long name twice":        {`{"` + strings.Repeat("x", 200) + `":1,"` + strings.Repeat("x", 200) + `":2}`, "(a name of 200 bytes)", "given twice"},
		"high half":              {`{"a":"\ud800"}`, "a", "surrogate"},
		"high half before text":  {`{"a":"\ud800x"}`, "a", "surrogate"},
		"high half before \\n":   {`{"a":"\ud800\n"}`, "a", "surrogate"},
		"two high halves":        {`{"a":["\ud83d\ud83d"]}`, "a", "surrogate"},
		"low half":               {`{"a":"\udc00"}`, "a", "surrogate"},
		"half in a name":         {`{"a":{"\udfff":1}}`, "a", "surrogate"},
		"not UTF-8":              {"{\"a\":\"\xff\"}", "", "UTF-8"},
		"a surrogate in UTF-8":   {"\"\xed\xa0\x80\"", "", "UTF-8"},
		"byte order mark":        {"\ufeff{}", "", "at byte 1"},
		"two values":             {`{} {}`, "", "after its end, at byte 4"},
		"nothing":                {``, "", "ends too early"},
		"blanks":                 {" \n", "", "ends too early"},
		"cut off":                {`{"a":"b`, "", "ends too early"},
		"cut in an escape":       {`"\u00`, "", "ends too early"},
		"cut in a word":          {`{"a":tru`, "", "ends too early"},
		"no word":                {`[nil]`, "", "at byte 3"},
		"NaN":                    {`{"a":NaN}`, "", "at byte 6"},
		"leading zero":           {`[01]`, "", "at byte 3"},
		"plus":                   {`[+1]`, "", "at byte 2"},
		"dot without digits":     {`[1.]`, "", "at byte 4"},
		"power without digits":   {`[1e+]`, "", "at byte 5"},
		"comma at the end":       {`[1,]`, "", "at byte 4"},
		"comma in an object":     {`{"a":1,}`, "", "at byte 8"},
		"name without quotes":    {`{a:1}`, "", "at byte 2"},
		"single quotes":          {`{'a':1}`, "", "at byte 2"},
		"comment":                {`{"a":1/**/}`, "", "at byte 7"},
		"line end in a string":   {"\"a\nb\"", "", "at byte 3"},
		"unknown escape":         {`"\x41"`, "", "at byte 3"},
		"too deep":               {strings.Repeat(`{"a":`, 1002) + "1" + strings.Repeat("}", 1002), "", "deeper than 1000"},
	} {
		refused(t, name, strictjson.Check([]byte(tc.text)), tc.field, tc.problem)
	}
}

// TestAPathIsWrittenOnce is not parallel, because it counts allocations.
func TestAPathIsWrittenOnce(t *testing.T) {
	name := strings.Repeat("n", 100)
	text := []byte(strings.Repeat(`{"`+name+`":`, 900) + `{"a":1,"a":2}` + strings.Repeat("}", 900))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := strictjson.Check(text)
	runtime.ReadMemStats(&after)
	refused(t, "deep", err, strings.Repeat(name+".", 900)+"a", "given twice")
	if took := after.TotalAlloc - before.TotalAlloc; took > 20*uint64(len(text)) {
		t.Errorf("a text of %d bytes allocated %d", len(text), took)
	}
}

func refused(t *testing.T, name string, err error, field, problem string) {
	t.Helper()
	var wrong *strictjson.Error
	if !errors.As(err, &wrong) {
		t.Errorf("%s: accepted (%v)", name, err)
		return
	}
	if wrong.Field != field || !strings.Contains(wrong.Problem, problem) {
		t.Errorf("%s: %q %q", name, wrong.Field, wrong.Problem)
	}
}

func TestCheckObjectTakesObjectsAlone(t *testing.T) {
	t.Parallel()
	if err := strictjson.CheckObject([]byte(` {"a":1}`)); err != nil {
		t.Error(err)
	}
	for text, kind := range map[string]string{`[]`: "a list", `"x"`: "a string", `1`: "a number", `-1`: "a number", `null`: "null", `true`: "a boolean"} {
		refused(t, text, strictjson.CheckObject([]byte(text)), "", "must be an object, is "+kind)
	}
}

type Money struct {
	Minor    int64  `json:"minor"`
	Currency string `json:"currency,omitempty"`
}

type base struct {
	Reason string `json:"reason"`
	Hidden Money  `json:"hidden"`
}

type request struct {
	base
	*Money
	Moved  *Money           `json:"moved"`
	Lines  []Money          `json:"lines"`
	By     map[string]Money `json:"by"`
	Next   *request         `json:"next"`
	Hidden string           `json:"hidden"`
	Plain  string
	Secret string `json:"-"`
	own    int
}

func TestDecodeRefusesNamesInAnotherCase(t *testing.T) {
	t.Parallel()
	good := `{"reason":"x","minor":1,"moved":{"minor":1,"Note":1},"lines":[{"minor":2}],"by":{"Minor":{"minor":3},"minor":{}},` +
		`"next":{"moved":{"minor":4}},"hidden":"y","Plain":"z","own":1,"Secret":1,"other":{"MINOR":1}}`
	var r request
	if err := strictjson.Decode([]byte(good), &r); err != nil {
		t.Fatal(err)
	}
	if r.Moved.Minor != 1 || r.Lines[0].Minor != 2 || r.Next.Moved.Minor != 4 || r.Plain != "z" || r.own != 0 {
		t.Errorf("%+v", r)
	}
	for text, field := range map[string]string{
		`{"Moved":{}}`:                      "Moved",
		`{"moved":{},"MOVED":{}}`:           "MOVED",
		`{"moved":{"minor":1,"Minor":2}}`:   "moved.Minor",
		`{"lines":[{},{"currencY":"USD"}]}`: "lines.currencY",
		`{"by":{"x":{"MINOR":1}}}`:          "by.x.MINOR",
		`{"next":{"next":{"Next":null}}}`:   "next.next.Next",
		`{"Reason":"x"}`:                    "Reason",
		`{"MINOR":1}`:                       "MINOR",
		`{"plain":"x"}`:                     "plain",
		"{\"lineſ\":[]}":                    "lineſ", // folds to s
	} {
		err := strictjson.Decode([]byte(text), new(request))
		refused(t, text, err, field, "must be written ")
	}
	refused(t, "twice", strictjson.Decode([]byte(`{"moved":{"minor":1250},"moved":{"minor":1}}`), new(request)), "moved", "given twice")
	wrongType := strictjson.Decode([]byte(`{"reason":1}`), new(request))
	if wrongType == nil {
		t.Error("a number was read as text")
	}
}
