package launcher

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/types"
)

// Pod returns the running launcher of a pod, nil when there is none.
func (r *Runtime) Pod(uid types.UID) *Sandbox {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pods[string(uid)]
}

// Network returns the bridge that pods are attached to, and their addresses.
func (r *Runtime) Network() (bridge string, subnet netip.Prefix) {
	return r.record.Bridge, r.opts.Subnet
}
