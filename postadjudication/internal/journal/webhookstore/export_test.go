package webhookstore

// ArrayStatements are statements that take many rows, by their declarations.
var ArrayStatements = map[string]string{"saveSQL": saveSQL}
