package background

// maxIdleWorkers is how many goroutines of a crew wait for work.
const maxIdleWorkers = 256

// workerPool lends goroutines that have worked before. The stack of a new one grows to
// what a delivery needs by being copied several times over; theirs has grown.
type workerPool struct {
	jobs chan func()
	idle chan struct{} // one token for each goroutine that may wait
	done chan struct{}
}

func newWorkerPool() *workerPool {
	return &workerPool{jobs: make(chan func()), idle: make(chan struct{}, maxIdleWorkers), done: make(chan struct{})}
}

// do runs fn in a goroutine of its own.
func (c *workerPool) do(fn func()) {
	select {
	case c.jobs <- fn:
	default:
		go c.work(fn)
	}
}

func (c *workerPool) work(fn func()) {
	for {
		fn()
		select {
		case c.idle <- struct{}{}:
		default:
			return
		}
		select {
		case fn = <-c.jobs:
			<-c.idle
		case <-c.done:
			return
		}
	}
}

// close lets those go that wait. What runs goes on, and do still works.
func (c *workerPool) close() { close(c.done) }
