package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/recourse-dev/recourse/postadjudication"
)

// checkDuties names the principals that fetch adjudications and decide about money.
func checkDuties(ctx context.Context, service *postadjudication.Service) Check {
	const name = "duties apart"
	mixed, err := service.Health().MixedDuties(ctx)
	switch {
	case err != nil:
		return wrong(name, err.Error(), "see the other checks of Postgres")
	case len(mixed) == 0:
		return fine(name, "nobody who fetches adjudications decides about money")
	}
	var all []string
	for _, m := range mixed {
		all = append(all, m.Error())
	}
	return wrong(name, listSome(all), "recourse keys revoke PREFIX one of the two keys")
}

// maxNamed bounds how many keys a check names.
const maxNamed = 10

// checkAccessKeys names the access keys that never expire, expire soon, or are unused.
func checkAccessKeys(ctx context.Context, service *postadjudication.Service) Check {
	const name = "access keys"
	endless, ending, unused, err := service.Health().KeysToRenew(ctx)
	if err != nil {
		return wrong(name, err.Error(), "see the other checks of Postgres")
	}
	var found []string
	for _, group := range []struct {
		what string
		keys []postadjudication.AccessKey
	}{{"never expire", endless}, {"expire within 30 days and have no successor", ending}, {"were not used for 90 days", unused}} {
		if len(group.keys) > 0 {
			found = append(found, group.what+": "+keyNames(group.keys))
		}
	}
	if len(found) == 0 {
		return fine(name, "all expire, none within 30 days, all are used")
	}
	return hint(name, strings.Join(found, "; "), "recourse keys rotate PREFIX --tenant NAME creates a successor that expires; recourse keys revoke PREFIX revokes an unused key")
}

func keyNames(keys []postadjudication.AccessKey) string {
	var names []string
	for _, k := range keys[:min(len(keys), maxNamed)] {
		names = append(names, fmt.Sprintf("%s (%s of %s)", k.Prefix, k.Principal, k.Tenant))
	}
	if more := len(keys) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// checkAppRole checks whether the connected role could disable the triggers that protect the
// evidence. Only migrate needs such a role.
func checkAppRole(ctx context.Context, service *postadjudication.Service) Check {
	const name = "database role"
	role, err := service.Health().DatabaseRole(ctx)
	const separate = "CREATE ROLE NAME LOGIN PASSWORD '...', recourse migrate --app-role NAME, and use that role in the URL of every command but migrate"
	regrant := fmt.Sprintf("recourse migrate --app-role %s, as the owner of the schema", role.Name)
	if role.AppRole != "" && role.AppRole != role.Name { // --app-role would revoke the grants of the present app role
		regrant = fmt.Sprintf("connect as %s, to which migrate grants the needed rights, or make %s a member of it", role.AppRole, role.Name)
	}
	switch {
	case err != nil:
		return wrong(name, err.Error(), "see the other checks of Postgres")
	case role.Power != "":
		return wrong(name, fmt.Sprintf("%s %s: it could disable the triggers and change evidence", role.Name, role.Power), separate)
	case len(role.Excess) > 0:
		return wrong(name, fmt.Sprintf("%s owns nothing, but has rights that no process needs: %s", role.Name, listSome(role.Excess)), regrant)
	case len(role.Missing) > 0:
		return hint(name, fmt.Sprintf("%s owns nothing, and may read only, or not everything: it lacks %s", role.Name, listSome(role.Missing)), "nothing if it only reads; otherwise "+regrant)
	case role.AppRole == "":
		return hint(name, role.Name+" owns nothing, and its rights were granted by hand: migrate will not grant it new rights", regrant)
	}
	return fine(name, role.Name+" owns nothing, and has exactly the rights that processes need")
}

// listSome lists the first entries, and how many more there are.
func listSome(all []string) string {
	if len(all) <= maxNamed {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:maxNamed], ", "), len(all)-maxNamed)
}
