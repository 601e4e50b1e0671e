// Package bpf is the programs that decide about packets, in C, and what the generator
// made of them: `make generate`. Package datapath is for those who use it.
package bpf

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
)

// Version tells one build of the programs from others.
func Version() string {
	sum := sha256.Sum256(slices.Concat(_JvBytes, _ShapeBytes))
	return hex.EncodeToString(sum[:8])
}
