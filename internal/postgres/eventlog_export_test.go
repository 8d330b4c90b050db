package postgres

// EventPageSQL is the statement of Numbered.
const EventPageSQL = eventPageSQL
