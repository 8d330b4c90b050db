package testkit

import "fmt"

// Spelling is a way to write an id.
type Spelling struct {
	ID    string
	Wrong string // the code points that a refusal names; empty: the id is accepted
}

// Spellings returns ways to write an id. Most of those that are refused look like one another on a screen.
func Spellings() []Spelling {
	out := []Spelling{
		{"txr-M\u00fcller-1", ""}, {"txr-1", ""}, {"txr 1", ""}, {"\u65e5\u672c-1", ""}, {"\u05d0\u05d1-1", ""}, {"\U0001f600-1", ""}, {"q\u0323\u0301-1", ""},
		{"txr-M\u00fcll\u0435r-1", ""}, // a Cyrillic letter: said in the guide
		{"\uff4d\uff39-1", ""}, {"txr\u20111", ""}, {"\u0915\u094d\u0937", ""}, {"\u00aa\u00b2", ""},
		{"txr-Mu\u0308ller-1", "U+0075 U+0308 where NFC has U+00FC"},
		{"M\u00fclle\u0301r", "U+0065 U+0301 where NFC has U+00E9"},
		{"\u212bngstrom", "U+212B where NFC has U+00C5"},
		{"300\u212a", "U+212A where NFC has U+004B"},
		{"2\u2126", "U+2126 where NFC has U+03A9"},
		{"a\u0301\u0323", "U+0061 U+0301 U+0323 where NFC has U+1EA1 U+0301"},
		{"q\u0301\u0323", "U+0301 U+0323 where NFC has U+0323 U+0301"},
		{"\u1112\u1161\u11ab", "U+1112 U+1161 U+11AB where NFC has U+D55C"},
		{"\uf900", "U+F900 where NFC has U+8C48"},
		{"\u0958", "U+0958 where NFC has U+0915 U+093C"},
		{"a\u037eb", "U+037E where NFC has U+003B"},
		{"a\u0340b", "U+0061 U+0340 where NFC has U+00E0"},
		{" txr-1", "U+0020"}, {"txr-1 ", "U+0020"}, {" ", "U+0020"}, {"  ", "U+0020"}, {"\u3000", "U+3000"},
		{"txr-1\u2800", "U+2800"}, {"txr-1\u2028", "U+2028"}, {"txr-1\u2029", "U+2029"},
		{"txr-1\ue000", "U+E000"}, {"txr-1\U000f0000", "U+F0000"}, {"txr-1\U0010fffd", "U+10FFFD"},
		{"txr-1\u0378", "U+0378"}, {"txr-1\ufdd0", "U+FDD0"}, {"txr-1\uffff", "U+FFFF"}, {"txr-1\U0010ffff", "U+10FFFF"}, {"txr-1\U000e0080", "U+E0080"},
	}
	for _, blank := range []string{"\u00a0", "\u1680", "\u2000", "\u2009", "\u202f", "\u205f", "\u3000"} {
		out = append(out, Spelling{"txr-M\u00fcller" + blank + "1", fmt.Sprintf("%U", []rune(blank)[0])})
	}
	for _, unseen := range []string{
		"\u00ad", "\u034f", "\u061c", "\u115f", "\u17b4", "\u180e", "\u200b", "\u200c", "\u200d", "\u200e", "\u202e", "\u2060", "\u2066", "\u3164", "\ufe0f", "\ufeff", "\uffa0", "\U000e0001", "\U000e0041", "\U000e0100",
	} {
		named := fmt.Sprintf("%U", []rune(unseen)[0])
		out = append(out, Spelling{"txr-M\u00fcller-1" + unseen, named}, Spelling{unseen + "txr-1", named})
	}
	return out
}
