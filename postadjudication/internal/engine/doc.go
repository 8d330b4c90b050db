// Package engine makes the background.Manager that executes the families of a service.
//
//	Service ──▶ Engine ──▶ background.Manager ──▶ asynq, Redis
//
// It promises that what a Service holds of the manager is an interface, so that of the packages of
// postadjudication, tests apart, only this one compiles the manager's types. They lead to those of
// go-redis, whose fifteen hundred functions the compiler makes again in each package that reads them.
//
// Of casework it knows only the interfaces Engine and Fetcher. It must not know what the families do,
// nor the journal.
package engine
