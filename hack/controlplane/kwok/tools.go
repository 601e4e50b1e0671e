//go:build tools

// Package kwok pins the kwok controller that simulates the nodes of tests and
// the demo which are not this machine.
package kwok

import _ "sigs.k8s.io/kwok/cmd/kwok"
