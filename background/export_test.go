package background

// For tests in package background_test.
var NewPipelined = newPipelined
