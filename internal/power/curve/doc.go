// Package curve learns what a VM costs its host against its traffic: CPU time
// and wake-ups as functions of packets and bits per second, one curve for each
// class of VMs and buffering window.
//
// Below the knee a curve is
//
//	h(p, b) = idle + c1 p + c2 p/(p+1k) + c3 p/(p+10k) + c4 p/(p+100k) + c5 b
//
// with no negative coefficient, so that it is increasing and concave whatever
// is learned: a busy VM amortises its wake-ups. Beyond the knee K, the rate at
// which the VM or its host threads run out of CPU, the CPU time is convex:
//
//	h(K) + h'(K) (p-K) + e (h(K)-idle) ((p-K)/K)^2,    e >= 0
//
// the last of it straight on from K/0.6, where a CPU is full. There h' is along the
// way that traffic of constant packet size takes. The wake-ups go on along their
// tangent there: what is saturated wakes up less, not more.
//
// It is learned from how the cost of each VM changes with its own traffic, not
// from how VMs differ: see habit.go, and follow.go for the knee. What a guest does apart from its traffic is
// the idle term, a mean over the VMs.
//
// The form is of the project; docs/design/energy-priors.md has the reasons and
// what it was fitted to. The package is pure, and a Set is used by one
// goroutine at a time.
package curve
