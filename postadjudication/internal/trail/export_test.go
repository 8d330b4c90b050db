package trail

// ArrayStatements are statements that take arrays, by their declarations.
var ArrayStatements = map[string]string{"ownersSQL": ownersSQL, "countCasesSQL": countCasesSQL, "annotationsOfRunsSQL": annotationsOfRunsSQL}
