package energy

import (
	"strings"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
)

// LauncherPrefix begins the names of KubeVirt's launcher pods.
const LauncherPrefix = "virt-launcher-"

const (
	// suffixLength is of what the API server appends to metadata.generateName, and
	// mostBase what it keeps of that: long names of VMs are cut.
	suffixLength = 5
	mostBase     = 63 - suffixLength
)

// Launcher is the launcher pod of a VM on one node, as far as an exporter shows
// it: by its UID, or else, as Kepler 0.9 does, by its namespace and name. Make it
// with LauncherOfPod.
type Launcher struct {
	// UID of the pod; the rest is empty then.
	UID string
	// Namespace of the pod, and its name without what was appended at random.
	Namespace, Base string
}

// LauncherOfPod returns the launcher that a pod is. It is false for pods that are
// none, by their name.
func LauncherOfPod(uid, namespace, name string) (Launcher, bool) {
	base := name[:max(0, len(name)-suffixLength)]
	switch {
	case len(base) <= len(LauncherPrefix) || !strings.HasPrefix(base, LauncherPrefix):
		return Launcher{}, false
	case uid != "":
		return Launcher{UID: uid}, true
	}
	return Launcher{Namespace: namespace, Base: base}, namespace != ""
}

// VMs are the figures that a source has of the VMs of one node. They are never
// changed once made.
//
// An exporter divides the node's power over pods by CPU time. That ranks VMs; two
// of equal CPU time may cost different power, so it judges nothing.
type VMs map[Launcher]model.Power

// Of returns the figure of a VM, by the UID of its launcher pod on the node, or
// else by its namespace and name.
func (v VMs) Of(podUID, namespace, name string) (model.Power, bool) {
	if reading, found := v[Launcher{UID: podUID}]; found && podUID != "" {
		return reading, true
	}
	// The name that KubeVirt generates pods' names from.
	base := LauncherPrefix + name + "-"
	reading, found := v[Launcher{Namespace: namespace, Base: base[:min(len(base), mostBase)]}]
	return reading, found
}

// mostVMs is more than a node can run, and bounds what a server that makes up
// pods can fill the memory with.
const mostVMs = 4096

// renewed returns newer figures, with those of before that have no newer ones
// and are not older than freshness: a figure that is missing once is no VM that
// went.
func (v VMs) renewed(newer VMs, freshness time.Duration, now time.Time) VMs {
	if len(v)+len(newer) == 0 {
		return nil
	}
	out := VMs{}
	add := func(from VMs) {
		for launcher, reading := range from {
			known, found := out[launcher]
			switch {
			case found && !reading.Time.After(known.Time):
			case !found && len(out) >= mostVMs:
			case reading.Time.Sub(now) > maxAhead || Age(reading, now) > freshness:
			default:
				out[launcher] = reading
			}
		}
	}
	add(newer)
	add(v)
	return out
}
