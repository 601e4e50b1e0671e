package linux

import (
	"strings"
)

// podUIDOf returns the UID of the pod that a process is in, from the content of
// its /proc/PID/cgroup. It is empty when the process is in no pod, or when the
// hierarchies name different ones.
func podUIDOf(cgroups string) string {
	found := ""
	for line := range strings.Lines(cgroups) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 {
			continue
		}
		uid, ok := podOfPath(parts[2])
		if !ok {
			continue
		}
		if found != "" && found != uid {
			return ""
		}
		found = uid
	}
	return found
}

// podOfPath reads one path. The kubelet's folders may be nested in others (a
// node in a container, K3s), and the path of a neighbour starts with /.. for an
// agent with a cgroup namespace of its own, which hides the folders above. The
// innermost pod counts: a node in a pod has pods too.
func podOfPath(path string) (string, bool) {
	elements := strings.Split(path, "/")
	hidden := strings.HasPrefix(path, "/..")
	for i := len(elements) - 1; i >= 0; i-- {
		if uid, ok := systemdPod(elements[i]); ok {
			return uid, true
		}
		if uid, ok := strings.CutPrefix(elements[i], "pod"); ok && isUID(uid, '-') && (hidden || underKubepods(elements[:i])) {
			return uid, true
		}
	}
	return "", false
}

// systemdPod reads a pod's slice under the systemd driver, which cannot have
// dashes in a name: kubepods-burstable-podUID.slice, perhaps with the names of
// slices around it before.
func systemdPod(element string) (string, bool) {
	name, ok := strings.CutSuffix(element, ".slice")
	at := len(name) - uidLength
	if !ok || at < 0 || !isUID(name[at:], '_') {
		return "", false
	}
	above, ok := strings.CutSuffix(name[:at], "-pod")
	if !ok {
		return "", false
	}
	// The quality of service is missing when it is guaranteed.
	if last := strings.LastIndexByte(above, '-'); last >= 0 && !strings.HasSuffix(above, "kubepods") {
		above = above[:last]
	}
	return strings.ReplaceAll(name[at:], "_", "-"), strings.HasSuffix(above, "kubepods")
}

// uidLength is that of a UID in text: 32 digits and 4 separators.
const uidLength = 36

// isUID reports whether a text is a UID in lower case. It is not done by a regular
// expression because it runs for each path of each VM each second.
func isUID(text string, separator byte) bool {
	if len(text) != uidLength {
		return false
	}
	for i := range uidLength {
		c := text[i]
		switch i {
		case 8, 13, 18, 23:
			if c != separator {
				return false
			}
		default:
			if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
				return false
			}
		}
	}
	return true
}

// underKubepods reports whether the folders above a pod's are the kubelet's:
// kubepods, and one for the quality of service unless that is guaranteed.
func underKubepods(above []string) bool {
	for i := len(above) - 1; i >= 0 && i >= len(above)-2; i-- {
		if above[i] == "kubepods" || above[i] == "kubepods.slice" {
			return true
		}
	}
	return false
}
