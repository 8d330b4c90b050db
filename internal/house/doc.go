// Package house keeps the rules of the house as tests: which package may import
// which, how long a file and a function may grow, what pure packages must not
// touch. It holds nothing else.
package house
