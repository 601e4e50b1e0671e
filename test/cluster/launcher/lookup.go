package launcher

import "k8s.io/apimachinery/pkg/types"

// Pod returns the running launcher of a pod, nil when there is none.
func (r *Runtime) Pod(uid types.UID) *Sandbox {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pods[string(uid)]
}
