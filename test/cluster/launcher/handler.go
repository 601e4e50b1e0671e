package launcher

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/joulevirt/joulevirt/test/cluster/handler"
)

// ForHandler is r as the stand-in for virt-handler uses it.
func (r *Runtime) ForHandler() handler.Runtime { return handlerRuntime{r} }

type handlerRuntime struct{ runtime *Runtime }

func (h handlerRuntime) StartPod(ctx context.Context, pod *corev1.Pod) (handler.Sandbox, error) {
	sandbox, err := h.runtime.StartPod(ctx, pod)
	if err != nil {
		return nil, err // not sandbox: a nil *Sandbox is no nil interface
	}
	return sandbox, nil
}
