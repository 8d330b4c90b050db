package postgres

import "github.com/recourse-dev/recourse/receipts"

// termsJoin finds the submitted receipt of a run by the primary key of receipts: that of
// the first run of a case is its receipt 1; that of a later run is the first of its
// case that names it. No column of another table leads there, so that none of them can
// lead elsewhere.
const (
	termsColumns = `coalesce(own.body, CASE WHEN first.run_id = r.id THEN first.body END, '') AS own_said, CASE WHEN own.body IS NOT NULL THEN first.body END AS first_said`

	noTermsColumns = `NULL::text AS own_said, NULL::text AS first_said`

	termsJoin = `
  LEFT JOIN recourse.receipts first ON first.case_id = r.case_id AND first.seq = 1
  LEFT JOIN LATERAL (SELECT x.body FROM recourse.receipts x WHERE x.case_id = r.case_id AND x.seq > 1 AND x.run_id = r.id AND x.subtype = 'submitted'
    AND first.run_id IS DISTINCT FROM r.id ORDER BY x.seq LIMIT 1) own ON true
`
)

// terms are what the submitted receipt of the run says; zero when there is none that can
// be read, nil when it was not asked for.
func (r *snapshotRow) terms() *receipts.Terms {
	if !r.OwnReceipt.Valid {
		return nil
	}
	t, err := receipts.ReadTerms([]byte(r.OwnReceipt.String))
	if err != nil {
		return new(receipts.Terms)
	}
	if r.FirstReceipt.Valid {
		if first, err := receipts.ReadTerms([]byte(r.FirstReceipt.String)); err == nil {
			t = t.Since(first)
		}
	}
	return &t
}
