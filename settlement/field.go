package settlement

// FieldError says which field of an input is wrong. Field is its name in JSON,
// such as "amount.minor". The same input is refused every time.
type FieldError struct{ Field, Problem string }

func (e *FieldError) Error() string { return e.Field + " " + e.Problem }
