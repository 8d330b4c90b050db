package spec

// ValidType is validType.
var ValidType = validType

// States and ParseTime are states and parseTime.
var (
	States    = states
	ParseTime = parseTime
)
