//go:build tools

// Package kubevirt pins the KubeVirt control plane that tests and the demo run.
package kubevirt

import (
	_ "kubevirt.io/kubevirt/cmd/virt-api"
	_ "kubevirt.io/kubevirt/cmd/virt-controller"
)
