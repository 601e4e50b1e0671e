package discover

import (
	"regexp"
	"strings"
)

var (
	// cgroupfsPod is a pod's folder under the cgroupfs driver: podUID.
	cgroupfsPod = regexp.MustCompile(`^pod([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$`)
	// systemdPod is a pod's slice under the systemd driver, which cannot have
	// dashes in a name: kubepods-burstable-podUID.slice.
	systemdPod = regexp.MustCompile(`^[0-9A-Za-z_-]*kubepods(?:-[a-z]+)?-pod([0-9a-f]{8}(?:_[0-9a-f]{4}){3}_[0-9a-f]{12})\.slice$`)
)

// PodUID returns the UID of the pod that a process is in, from the content of
// its /proc/PID/cgroup. It returns false when the process is in no pod, or when
// the hierarchies name different ones.
func PodUID(cgroups string) (string, bool) {
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
			return "", false
		}
		found = uid
	}
	return found, found != ""
}

// podOfPath reads one path. The kubelet's folders may be nested in others (a
// node in a container, K3s), and the path of a neighbour starts with /.. for an
// agent with a cgroup namespace of its own, which hides the folders above. The
// innermost pod counts: a node in a pod has pods too.
func podOfPath(path string) (string, bool) {
	elements := strings.Split(path, "/")
	hidden := strings.HasPrefix(path, "/..")
	for i := len(elements) - 1; i >= 0; i-- {
		if m := systemdPod.FindStringSubmatch(elements[i]); m != nil {
			return strings.ReplaceAll(m[1], "_", "-"), true
		}
		if m := cgroupfsPod.FindStringSubmatch(elements[i]); m != nil && (hidden || underKubepods(elements[:i])) {
			return m[1], true
		}
	}
	return "", false
}

// underKubepods tells whether the folders above a pod's are the kubelet's:
// kubepods, and one for the quality of service unless that is guaranteed.
func underKubepods(above []string) bool {
	for i := len(above) - 1; i >= 0 && i >= len(above)-2; i-- {
		if above[i] == "kubepods" || above[i] == "kubepods.slice" {
			return true
		}
	}
	return false
}
