// Package actuate has what the actuators share.
package actuate

import (
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/agent/discover"
)

// Outcome is what became of one lever of one VM.
type Outcome string

const (
	// Applied: every value was read back.
	Applied Outcome = "Applied"
	// Undone: nothing is wanted of the VM, and nothing of the agent's is left.
	Undone Outcome = "Undone"
	// Dedicated: KubeVirt pins the VM, which is left alone.
	Dedicated Outcome = "Dedicated"
	// NoAllowedCore: a pin has no CPU in the container's cpuset. Nothing is pinned.
	NoAllowedCore Outcome = "NoAllowedCore"
	// NoDevice: the VM has no network device that the lever could act on.
	NoDevice Outcome = "NoDevice"
	// Foreign: a device has a queueing discipline of somebody else, which is left
	// alone. Nothing is done to the VM's other devices either.
	Foreign Outcome = "Foreign"
	// Contested: something else reverted the agent's changes twice within an hour. The VM is
	// left to it until that is longer ago.
	Contested Outcome = "Contested"
	// Incomplete: some vCPU of the plan has no thread; the others are pinned.
	Incomplete Outcome = "Incomplete"
	// Unsupported: the kernel cannot do it, or not to the threads or devices of this VM.
	Unsupported Outcome = "Unsupported"
	// Failed: the kernel or the journal refused, or another value was read back.
	Failed Outcome = "Failed"
	// Gone: the VM ended meanwhile.
	Gone Outcome = "Gone"
)

// Result is what became of one lever of one VM.
type Result struct {
	discover.VM
	Outcome Outcome
	// Message says more, in words.
	Message string
	// Changed counts the threads or devices that were changed or reverted.
	Changed int
}

const (
	// ContestLimit is how many foreign changes within contestMemory make the agent yield.
	ContestLimit = 2
	// contestMemory is for how long a foreign change counts: one libvirt call or one reset by a
	// CNI plugin a month is no contest.
	contestMemory = time.Hour
)

// Contest counts how often something else changed what the agent had applied.
type Contest struct {
	// changes are the times of those that count, by a monotonic clock.
	changes []time.Duration
}

// Add counts a foreign change.
func (c *Contest) Add(now time.Duration) { c.changes = append(c.changes, now) }

// Lost reports whether the agent leaves the thing to whoever changes it.
func (c *Contest) Lost(now time.Duration) bool {
	c.changes = slices.DeleteFunc(c.changes, func(at time.Duration) bool { return now-at >= contestMemory })
	return len(c.changes) >= ContestLimit
}
