// Package search finds, counts and groups dead letters: it keeps their search index and chooses
// the access path of each search.
//
// # Promise
//
// A search after CatchUp finds exactly the dead letters that its filter selects, in one order
// without gaps or repetitions, on every access path. Counts, tallies, groups and histograms of one
// call are of one moment. The index follows the order of events:
//
//	event log, outbox ─▶ cases with new receipts ─▶ their dead runs as they are now ─▶ letters ─▶ facet_groups, facet_group_days
//
// A step of it is one transaction under a lock. An older state of a letter never overwrites a newer
// one, an interrupted step has no effect, and a repeated step changes nothing. What a search found
// is read from runs and cases, so that it is shown as it is now.
//
// # Cost model
//
// A facet is a property by which letters are filtered and counted, such as the reason. Letters
// whose facets are all equal are a facet group: one row, with the number of its letters, their sums,
// and the bounds of each ordered column. A tenant has few groups (hundreds), and up to millions of
// letters. Each search first reads the groups of its tenant; those whose facets the filter excludes,
// or whose bounds lie outside of its ranges, are left out. What remains says how many letters the
// facets select, exactly, without reading one.
//
// The cost of a path is the number of index entries that it may read. The server's planner does not
// know how filters correlate with orders, so searchSettings leave it one plan per statement, and
// this package chooses the statement:
//
//	path         reads                                         entries, at most
//	byKey        index scan of one key, then sort              the letters of the key
//	byFacet      index scan of each group, then sort           the letters of the groups + groupSeekCost a group
//	byRange      index scan of a column's range, then sort     the letters in the range, probed up to probeLimit
//	kWayMerge    the first of each group in order, merged      limit + groups x (groupSeekCost + 2 / selectivity)
//	orderedScan  index scan in order, each entry checked       limit x tenant's letters / (selected x selectivity),
//	                                                           if matches are spread evenly; else scanLimit
//
// Selectivity is the fraction of a group's letters that the ranges on other columns select,
// estimated from the probed sizes of those ranges. A path with a certain bound is preferred up to
// certainCostLimit. An ordered scan, whose cost rests on an assumption, must promise a fourth
// (scanSafetyFactor) of the certain cost, and gives up after scanLimit entries; the search then
// continues after the last match, on another path.
//
// A range of the time of death is not probed if most letters of the tenant are selected, since it has
// hardly more of them, nor for a total that few days add up to.
//
// Facet groups have their letters counted by the day of death as well. A total over a range of times of
// death adds up the whole days, at most groups x days entries, and reads only the letters of the parts
// of days at its ends. An offset in an order by death leaves out whole days by these counts; of the day
// in which it ends, each letter before it is read.
//
// A text of three characters or more, of which a group's constant part has not all, is found by
// trigrams: an index scan of the letters that have all trigrams of the text beyond that part, at
// most maxTextCandidates, each checked. A shorter text has no trigrams: the substrings of one and
// two characters that messages have beyond their constant part are stored once for each constant
// part, and groups without the text are left out. If most messages of the groups have to be
// checked, they are read in heap order.
//
// TestEveryAccessPathUsesItsIndex prints the plan of each path and asserts the index that it reads.
//
// # House
//
// It decides nothing about letters: what a run or a case is, it reads from their rows. It must not
// know who asks, nor plans.
package search
