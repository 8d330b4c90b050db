package postadjudication

// EffectiveRetention says how long this process keeps open letters of a family, or of one of its
// queues.
type EffectiveRetention struct {
	Family   string   `json:"family"`
	Queue    string   `json:"queue,omitempty"`     // empty: all that have no rule of their own
	MaxAge   Duration `json:"max_age"`             // from death
	MaxCount int      `json:"max_count,omitempty"` // of each tenant; any number when missing
	// Archived letters go into an archive first. Without one, those of settlements stay.
	Archived bool `json:"archived"`
}

// Retention tells how long letters are kept: a rule for each family, and behind them one
// for each queue that has its own.
func (s *Service) Retention() []EffectiveRetention {
	out := []EffectiveRetention{}
	for _, r := range s.retention.all() {
		out = append(out, EffectiveRetention{Family: r.Family, Queue: r.Queue, MaxAge: Duration(r.maxAge), MaxCount: r.maxCount, Archived: s.archive != nil})
	}
	return out
}
