package stored

// Statements about the list of dead letters, which follows the order of events. $1 is the tenant.
const (
	// Unprojected begins a statement with the cases that have receipts which the list does not
	// follow yet, as waiting(id).
	Unprojected = `
WITH waiting AS MATERIALIZED (
  SELECT u.id FROM recourse.event_log e, unnest(e.case_ids) AS u(id) WHERE e.tenant = $1 AND e.last > (SELECT last FROM recourse.projected WHERE name = 'letters')
  UNION
  SELECT u.id FROM recourse.outbox o, unnest(o.case_ids) AS u(id) WHERE o.tenant = $1
)`

	// FacetGroupCounts counts the letters of a tenant's facet groups.
	FacetGroupCounts = `
  SELECT s.id, count(l.run_id) AS n, coalesce(sum(l.at_risk), 0) AS risk, coalesce(sum(l.attempts), 0) AS tries,
    (extract(epoch FROM min(l.dead_at)) * 1000000)::bigint AS first_dead, (extract(epoch FROM max(l.dead_at)) * 1000000)::bigint AS last_dead,
    (extract(epoch FROM min(l.last_seen_at)) * 1000000)::bigint AS first_seen, (extract(epoch FROM max(l.last_seen_at)) * 1000000)::bigint AS last_seen,
    min(l.amount) AS least_amount, max(l.amount) AS most_amount, min(l.attempts) AS least_attempts, max(l.attempts) AS most_attempts,
    (extract(epoch FROM max(l.last_seen_at - l.dead_at)) * 1000000)::bigint AS most_lag
  FROM recourse.facet_groups s LEFT JOIN recourse.letters l ON l.facet_group = s.id WHERE s.tenant = $1 GROUP BY s.id`

	// FacetGroupDiffers is true for a group s whose stored counts are not those of d, or whose
	// bounds are too narrow for d.
	FacetGroupDiffers = `((s.letters, s.at_risk, s.attempts) IS DISTINCT FROM (d.n, d.risk, d.tries) OR d.n > 0 AND NOT coalesce(
  s.first_dead <= d.first_dead AND s.last_dead >= d.last_dead AND s.first_seen <= d.first_seen AND s.last_seen >= d.last_seen AND s.least_amount <= d.least_amount AND s.most_amount >= d.most_amount
  AND s.least_attempts <= d.least_attempts AND s.most_attempts >= d.most_attempts AND s.most_lag >= d.most_lag, false))`

	// FacetGroupDayDiffers finds the days of a tenant's facet groups whose stored counts are not those
	// of their letters: group and day, with what is stored, or NULLs, and what is there, or NULLs.
	FacetGroupDayDiffers = `
  SELECT facet_group, day, s.letters, s.at_risk, s.attempts, d.n, d.risk, d.tries
  FROM (SELECT y.* FROM recourse.facet_groups g JOIN recourse.facet_group_days y ON y.facet_group = g.id WHERE g.tenant = $1) s
    FULL JOIN (SELECT l.facet_group, floor(extract(epoch FROM l.dead_at) / 86400)::int AS day, count(*) AS n, sum(l.at_risk) AS risk, sum(l.attempts) AS tries
      FROM recourse.facet_groups g JOIN recourse.letters l ON l.facet_group = g.id WHERE g.tenant = $1 GROUP BY 1, 2) d USING (facet_group, day)
  WHERE (s.letters, s.at_risk, s.attempts) IS DISTINCT FROM (d.n, d.risk, d.tries)`
)
