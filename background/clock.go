package background

import "time"

// ClockBound is by how much the clock of a process may differ from the one that all go
// by, after it was corrected; see clock.
const ClockBound = time.Second
