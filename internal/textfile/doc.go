// Package textfile reads the text files that people hand to commands, as the programs of their machines write them. A
// Reader returns UTF-8 without a byte order mark, whether the file is UTF-8, UTF-16 with a byte order mark, or
// either of them compressed with gzip. It refuses by name what it can't read. Line ends stay as they are: Unix
// makes CRLF an LF. It does not check that UTF-8 is valid: what reads the lines does, and names the line.
package textfile
