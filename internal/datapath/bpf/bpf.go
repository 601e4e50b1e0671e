// Package bpf is the program that decides about packets, in C, and what the generator
// made of it: `make generate`. Package datapath is for those who use it.
package bpf

import (
	"crypto/sha256"
	"encoding/hex"
)

// Version tells one build of the program from others.
func Version() string {
	sum := sha256.Sum256(_JvBytes)
	return hex.EncodeToString(sum[:8])
}
