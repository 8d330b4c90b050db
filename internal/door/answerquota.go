package door

import (
	"context"
	"net/http"
)

const (
	// maxUncountedAnswer is the length of an answer from which on it is counted while it is written.
	maxUncountedAnswer = 64 << 10

	// Bytes of answers that are being written, from which on no more are made.
	maxProcessAnswerBytes = 256 << 20
	maxTenantAnswerBytes  = 64 << 20
)

// CheckAnswers refuses a request whose answer may be long while its tenant or the process has too many bytes of
// answers that nobody has read yet. What was read already is written.
//
//	429 too_many_answers  the tenant or the process is at its limit
func (d *Door) CheckAnswers(tenant string) error {
	if !d.answerQuota.full(tenant) {
		return nil
	}
	return NewRefusal(http.StatusTooManyRequests, "too_many_answers", "%d MiB of answers of the tenant, or %d MiB of the process, are not read yet: read them, ask for less at once, or one after the other", maxTenantAnswerBytes>>20, maxProcessAnswerBytes>>20).WithRetryAfter(1)
}

// Read runs f, which reads, in a slot of the tenant's reads. Its error is that of the context, if that ends before
// there is a slot, that of CheckKeyOf, if the caller's key ends before there is one, or the refusal of CheckAnswers.
// An answer counts once its writing begins, so a few more than the slots may be read beyond the limit.
func (d *Door) Read(ctx context.Context, tenant string, f func()) (err error) {
	waited := d.reads.Do(ctx, tenant, func() {
		if err = d.CheckKeyOf(ctx); err != nil {
			return
		}
		if err = d.CheckAnswers(tenant); err == nil {
			f()
		}
	})
	if waited != nil {
		return waited
	}
	return err
}

// ReadPage is Read for a page of a stream or a long poll that has begun, whose writer keeps one page at most.
func (d *Door) ReadPage(ctx context.Context, tenant string, f func()) error {
	return d.reads.Do(ctx, tenant, f)
}

// full reports whether a tenant, or the process, is at its limit.
func (s *quota) full(tenant string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byTenant[tenant] >= s.tenant || s.used >= s.process
}

// hold takes n for a caller until release is called, whatever the limits are.
func (s *quota) hold(c Caller, n int64) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(c, n)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.add(c, -n)
	}
}
