// Package screen writes for people: titles, paragraphs, tables that fit the
// terminal, and progress of long work. It knows nothing of what is shown.
package screen
