package spec

// ValidQueue and ValidType are validQueue and validType.
var (
	ValidQueue = validQueue
	ValidType  = validType
)
