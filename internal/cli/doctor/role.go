package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/recourse-dev/recourse/postadjudication"
)

// appRole tells whether the role that connects could turn off what keeps evidence as it is.
// Only migrate needs one that can.
func appRole(ctx context.Context, service *postadjudication.Service) Check {
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
		return wrong(name, fmt.Sprintf("%s owns nothing, but has what no process needs: %s", role.Name, some(role.Excess)), regrant)
	case len(role.Missing) > 0:
		return hint(name, fmt.Sprintf("%s owns nothing, and may read only, or not all: it lacks %s", role.Name, some(role.Missing)), "nothing where it only reads; else "+regrant)
	case role.AppRole == "":
		return hint(name, role.Name+" owns nothing, and was granted by hand what processes need: migrate will grant it nothing that is new", regrant)
	}
	return fine(name, role.Name+" owns nothing, and has what processes need and no more")
}

// some lists the first of what may be many.
func some(all []string) string {
	if len(all) <= mostNamed {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:mostNamed], ", "), len(all)-mostNamed)
}
