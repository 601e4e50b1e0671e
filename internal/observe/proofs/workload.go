package proofs

import (
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

const (
	// WorkloadMixed is the word for nodes on which no class of traffic prevails.
	WorkloadMixed = "Mixed"
	// prevails is the share of a node's VMs above which a class of traffic is the node's
	// word, and keeps the share from which on it stays so.
	prevails, keeps = 2. / 3, 1. / 2
	// settledFor is how long another word must hold: a verdict is of a class, and VMs that
	// come and go within the hour are of all classes.
	settledFor = time.Hour
)

// Workload is a word for what the VMs of a node do, by the classes of their traffic. The
// zero value knows none.
type Workload struct {
	word, next string
	// since when next would be the word.
	since time.Time
}

// Begin with the word that an earlier manager had, unless it is empty. It stays until another
// holds for long enough: a change of managers is no cause for another class.
func (w *Workload) Begin(word string) {
	if word != "" {
		w.word, w.next = word, word
	}
}

// Look takes in how many VMs of each class there are now, and returns the word. A VM more or
// less does not change it each minute, and a node that lost all VMs keeps it.
func (w *Workload) Look(vms map[v1alpha1.TrafficClass]int, now time.Time) string {
	is := wordOf(vms, w.word)
	switch {
	case w.word == "":
		w.word = is
		w.next = is
	case is == w.word:
		w.next = is
	case is != w.next || now.Before(w.since):
		w.next, w.since = is, now
	case now.Sub(w.since) >= settledFor:
		w.word = is
	}
	return w.word
}

// wordOf is the word for VMs of these classes where another was.
func wordOf(vms map[v1alpha1.TrafficClass]int, was string) string {
	all := 0
	for _, count := range vms {
		all += count
	}
	if all == 0 && was != "" {
		return was
	}
	for class, count := range vms {
		if class == "" {
			continue // of a profile that was stored before it had one
		}
		share := float64(count) / float64(all)
		if share > prevails || share >= keeps && string(class) == was {
			return string(class)
		}
	}
	return WorkloadMixed
}
