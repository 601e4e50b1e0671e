//go:build tools

// Package contour pins the Gateway API controller that tests route traffic
// through, with Envoy as its data plane.
package contour

import _ "github.com/projectcontour/contour/cmd/contour"
