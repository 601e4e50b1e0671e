package discover

import "strings"

// Lengths of names that Kubernetes allows.
const (
	maxNamespace = 63
	maxName      = 253
)

// Guest returns the VMI that a QEMU's command line names: KubeVirt's domains
// are called NAMESPACE_NAME, and a namespace has no underscore. named is false
// when the command line gives the process no guest name, as libvirt's probes of
// QEMU do; ok is false when the name cannot be a VMI's.
func Guest(args []string) (namespace, name string, named, ok bool) {
	value, named := guestOption(args)
	if !named {
		return "", "", false, false
	}
	namespace, name, found := strings.Cut(value, "_")
	if !found || !isDNSName(namespace, maxNamespace, false) || !isDNSName(name, maxName, true) {
		return "", "", true, false
	}
	return namespace, name, true, true
}

// guestOption returns the guest's name in -name, which is written
// "guest=NAME,debug-threads=on" or just "NAME". Names with commas, which QEMU
// doubles, come out cut: no VMI has one.
func guestOption(args []string) (string, bool) {
	for i, arg := range args {
		if (arg != "-name" && arg != "--name") || i+1 == len(args) {
			continue
		}
		first, _, _ := strings.Cut(args[i+1], ",")
		if guest, explicit := strings.CutPrefix(first, "guest="); explicit {
			return guest, true
		}
		return first, !strings.Contains(first, "=")
	}
	return "", false
}

// isDNSName tells whether Kubernetes would allow s as a label, or with dots as
// a subdomain.
func isDNSName(s string, longest int, dots bool) bool {
	if s == "" || len(s) > longest {
		return false
	}
	for i := range len(s) {
		c := s[i]
		inner := i > 0 && i < len(s)-1
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		case c == '-' && inner:
		case c == '.' && inner && dots:
		default:
			return false
		}
	}
	return true
}
