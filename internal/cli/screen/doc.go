// Package screen writes titles, paragraphs, tables that fit the terminal, and progress bars. It
// knows nothing of the content.
package screen
