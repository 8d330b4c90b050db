// Package serverfault says in words what is wrong with a Postgres or a Redis that answers and refuses work, and what to do about
// it, so that /readyz and recourse doctor say the same of the same fault. The words name no server, address or tenant.
package serverfault
