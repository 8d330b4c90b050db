package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/recourse-dev/recourse/postadjudication"
)

// maxNamed bounds how many keys a check names.
const maxNamed = 10

// checkAccessKeys names the access keys that never end, end soon, or are used by nobody.
func checkAccessKeys(ctx context.Context, service *postadjudication.Service) Check {
	const name = "access keys"
	endless, ending, unused, err := service.KeysToRenew(ctx)
	if err != nil {
		return wrong(name, err.Error(), "see the other checks of Postgres")
	}
	var found []string
	for _, group := range []struct {
		what string
		keys []postadjudication.AccessKey
	}{{"never end", endless}, {"end within 30 days and have no successor", ending}, {"were not used for 90 days", unused}} {
		if len(group.keys) > 0 {
			found = append(found, group.what+": "+keyNames(group.keys))
		}
	}
	if len(found) == 0 {
		return fine(name, "all end, none soon, all are used")
	}
	return hint(name, strings.Join(found, "; "), "recourse keys rotate PREFIX --tenant NAME makes a successor that ends; recourse keys revoke PREFIX ends what nobody uses")
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

// checkAppRole tells whether the role that connects could turn off what keeps evidence as it is.
// Only migrate needs one that can.
func checkAppRole(ctx context.Context, service *postadjudication.Service) Check {
	const name = "database role"
	role, err := service.DatabaseRole(ctx)
	const separate = "CREATE ROLE NAME LOGIN PASSWORD '...', recourse migrate --app-role NAME, and name the database for that role everywhere but for migrate"
	regrant := fmt.Sprintf("recourse migrate --app-role %s, as the owner of the schema", role.Name)
	if role.AppRole != "" && role.AppRole != role.Name { // another one's grants would be taken back
		regrant = fmt.Sprintf("connect as %s, which migrate grants what processes need, or make %s a member of it", role.AppRole, role.Name)
	}
	switch {
	case err != nil:
		return wrong(name, err.Error(), "see the other checks of Postgres")
	case role.Power != "":
		return wrong(name, fmt.Sprintf("%s %s: it could turn the triggers off, and change evidence", role.Name, role.Power), separate)
	case len(role.Excess) > 0:
		return wrong(name, fmt.Sprintf("%s owns nothing, but has what no process needs: %s", role.Name, listSome(role.Excess)), regrant)
	case len(role.Missing) > 0:
		return hint(name, fmt.Sprintf("%s owns nothing, and may read only, or not all: it lacks %s", role.Name, listSome(role.Missing)), "nothing where it only reads; else "+regrant)
	case role.AppRole == "":
		return hint(name, role.Name+" owns nothing, and was granted by hand what processes need: migrate will grant it nothing that is new", regrant)
	}
	return fine(name, role.Name+" owns nothing, and has what processes need and no more")
}

// listSome lists the first of what may be many.
func listSome(all []string) string {
	if len(all) <= maxNamed {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:maxNamed], ", "), len(all)-maxNamed)
}
