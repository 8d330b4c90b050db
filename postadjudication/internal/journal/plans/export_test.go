package plans

// ArrayStatements are statements that take arrays, by their declarations.
var ArrayStatements = map[string]string{
	"insertGivenItemsSQL": insertGivenItemsSQL, "insertBatchSQL": insertBatchSQL(selectedLettersSQL, 2), "setGatesSQL": setGatesSQL, "recordItemsSQL": recordItemsSQL,
}
