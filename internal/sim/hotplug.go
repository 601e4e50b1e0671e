package sim

import (
	"fmt"
	"strconv"

	"github.com/joulevirt/joulevirt/internal/host"
)

// AddVCPU plugs one more vCPU into a running VM and returns its thread. As every
// thread it inherits the affinity and the slice of the thread that makes it: the
// emulator's.
func (h *Host) AddVCPU(podUID string) (host.TaskID, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, err := h.pod(podUID)
	if err != nil {
		return host.TaskID{}, err
	}
	if len(h.tids)+1 >= h.cfg.PIDMax-firstTID {
		return host.TaskID{}, fmt.Errorf("simulated host %s: no process numbers left below PIDMax %d", h.cfg.Name, h.cfg.PIDMax)
	}
	maker := &v.threads[0]
	t := thread{
		id:   host.TaskID{PID: v.id.PID, TID: h.newTID(), Start: h.ticks()},
		name: "CPU " + strconv.Itoa(v.VCPUs) + "/KVM", role: vcpu,
		class: maker.class, asked: maker.asked, slice: maker.slice, asks: maker.asks,
	}
	v.threads = append(v.threads, t)
	v.VCPUs++
	return t.id, nil
}
