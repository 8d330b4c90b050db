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
