// Package engine connects a service to the background.Manager that executes its families.
//
//	Service ──▶ Engine ──▶ background.Manager ──▶ asynq, Redis
//
// It promises that what a Service holds of the manager is an interface, so that of the packages
// above only this one compiles the manager's types. They lead to those of go-redis, whose
// fifteen hundred functions the compiler makes again in each package that reads them.
//
// It must not know what the families do, nor the journal.
package engine
