package postgres

// NumberedSQL is the statement of Numbered.
const NumberedSQL = numberedSQL
