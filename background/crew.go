package background

// crewMax is how many goroutines of a crew wait for work.
const crewMax = 256

// crew lends goroutines that have worked before. The stack of a new one grows to
// what a delivery needs by being copied several times over; theirs has grown.
type crew struct {
	jobs chan func()
	idle chan struct{} // one token for each goroutine that may wait
	done chan struct{}
}

func newCrew() *crew {
	return &crew{jobs: make(chan func()), idle: make(chan struct{}, crewMax), done: make(chan struct{})}
}

// do runs fn in a goroutine of its own.
func (c *crew) do(fn func()) {
	select {
	case c.jobs <- fn:
	default:
		go c.work(fn)
	}
}

func (c *crew) work(fn func()) {
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
func (c *crew) close() { close(c.done) }
