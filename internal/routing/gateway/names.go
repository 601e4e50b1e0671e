package gateway

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/joulevirt/joulevirt/internal/routing"
)

const (
	// maxBackends of a rule in the Gateway API.
	maxBackends = 16
	// leaveFolds is the number of members at which a folded group is unfolded: a VM
	// that restarts must not do it.
	leaveFolds = 12
	// readable is how much of a name stays in the name of a Service, which has at
	// most 63 characters.
	readable = 24
)

// memberService names a member's Service, foldService that of a fold.
func memberService(group *routing.Group, member string) string {
	return serviceName(group, "member", member)
}

func foldService(group *routing.Group, fold int) string {
	return serviceName(group, "fold", fmt.Sprintf("fold-%d", fold))
}

// serviceName is a DNS label: dots go, long names are cut, and a digest of all
// keeps names apart.
func serviceName(group *routing.Group, what, name string) string {
	return fmt.Sprintf("jv-%s-%s-%s", shorten(group.Target.Name), shorten(name), digest(group, what, name))
}

// groupLabel tells a group from others of the same profile, as it was before.
func groupLabel(group *routing.Group) string {
	return string(group.UID) + "-" + digest(group)
}

func digest(group *routing.Group, parts ...string) string {
	parts = append([]string{string(group.Target.Kind), group.Target.Name}, parts...)
	sum := sha256.Sum256([]byte(strings.Join(parts, "/")))
	return fmt.Sprintf("%x", sum[:4])
}

func shorten(name string) string {
	name = strings.ReplaceAll(name, ".", "-")
	return strings.TrimRight(name[:min(len(name), readable)], "-")
}

// foldNumbers returns the folds by the names of their Services.
func foldNumbers(group *routing.Group) map[string]int {
	out := map[string]int{}
	for i := range maxBackends {
		out[foldService(group, i)] = i
	}
	return out
}
