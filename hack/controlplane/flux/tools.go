//go:build tools

// Package flux pins Flux's kustomize-controller, which applies in tests what Git has.
package flux

import _ "github.com/fluxcd/kustomize-controller"
