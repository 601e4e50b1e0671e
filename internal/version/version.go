// Package version tells which version of the product a program is.
package version

import "runtime/debug"

// version is set when a program is linked, which can set variables only: see
// LDFLAGS in the Makefile.
var version string

// String returns the version that the program was linked with, else that of
// its module, else "unknown".
func String() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
