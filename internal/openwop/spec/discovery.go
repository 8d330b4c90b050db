package spec

// Discovery is the document at /.well-known/openwop.
type Discovery struct {
	ProtocolVersion     string         `json:"protocolVersion"`
	SupportedEnvelopes  []string       `json:"supportedEnvelopes"`
	SchemaVersions      map[string]int `json:"schemaVersions"`
	Limits              Limits         `json:"limits"`
	Implementation      Implementation `json:"implementation"`
	SupportedTransports []string       `json:"supportedTransports"`
	Replay              Replay         `json:"replay"`
	DeadLetter          DeadLetter     `json:"deadLetter"`
	Fixtures            []string       `json:"fixtures,omitempty"` // workflows for conformance tests
}

// Limits are required in the document. All are those of dialogues with language models, which this host does
// not have.
type Limits struct {
	ClarificationRounds int `json:"clarificationRounds"`
	SchemaRounds        int `json:"schemaRounds"`
	EnvelopesPerTurn    int `json:"envelopesPerTurn"`
}

// Implementation is the program that answers.
type Implementation struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Vendor  string `json:"vendor"`
}

// Replay says which forks the host takes.
type Replay struct {
	Supported bool     `json:"supported"`
	Modes     []string `json:"modes"`
}

// DeadLetter says that runs are dead-lettered, and for how many days each can be forked. RFC 0053 allows
// no other members.
type DeadLetter struct {
	Supported     bool `json:"supported"`
	RetentionDays int  `json:"retentionDays"`
}

// Discover returns the document of a host.
func Discover(version string, retentionDays int, fixtures []string) Discovery {
	return Discovery{
		ProtocolVersion: "1.0", SupportedEnvelopes: []string{}, SchemaVersions: map[string]int{},
		Implementation:      Implementation{Name: "recourse", Version: version, Vendor: "recourse-dev"},
		SupportedTransports: []string{"rest"},
		Replay:              Replay{Supported: true, Modes: []string{string(Branch)}},
		DeadLetter:          DeadLetter{Supported: true, RetentionDays: retentionDays},
		Fixtures:            fixtures,
	}
}
