package controllers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrNotLeading says that nothing was written, because another manager leads.
var ErrNotLeading = errors.New("another manager holds the Lease")

// fenceTrust is how long an answer of the API server counts. Another manager may take a
// Lease that is held only 15 s after it was renewed.
const fenceTrust = time.Second

// Fence keeps a manager from writing that does not lead any more and does not know yet. One
// that stood still and goes on believes for seconds that it leads, with what it knew before,
// until it gives up renewing its Lease.
type Fence struct {
	// Identity of this manager, and Holder, who asks the API server who holds the Lease.
	Identity string
	Holder   func(context.Context) (string, error)
	// Clock has to go on while the manager stands still, as the real one does.
	Clock clock.PassiveClock

	mu sync.Mutex
	// held is when was asked last whether this manager holds the Lease, and it did.
	held time.Time
}

// Check returns nil when this manager leads, ErrNotLeading when another does, and an error
// when that is not known.
func (f *Fence) Check(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.Clock.Now()
	if !f.held.IsZero() && now.Sub(f.held) < fenceTrust {
		return nil
	}
	f.held = time.Time{}
	holder, err := f.Holder(ctx)
	if err != nil {
		return fmt.Errorf("ask whether this manager leads: %w", err)
	}
	if holder != f.Identity {
		return fmt.Errorf("%w: %q, and this one is %q", ErrNotLeading, holder, f.Identity)
	}
	f.held = now
	return nil
}

// Fenced returns a client that writes while the fence lets it, and reads at any time.
func Fenced(c client.Client, fence *Fence) client.Client { return &fenced{Client: c, fence: fence} }

type fenced struct {
	client.Client
	fence *Fence
}

func (c *fenced) Apply(ctx context.Context, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	if err := c.fence.Check(ctx); err != nil {
		return err
	}
	return c.Client.Apply(ctx, o, opts...)
}

func (c *fenced) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	if err := c.fence.Check(ctx); err != nil {
		return err
	}
	return c.Client.Create(ctx, o, opts...)
}

func (c *fenced) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	if err := c.fence.Check(ctx); err != nil {
		return err
	}
	return c.Client.Delete(ctx, o, opts...)
}

func (c *fenced) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	if err := c.fence.Check(ctx); err != nil {
		return err
	}
	return c.Client.Update(ctx, o, opts...)
}

func (c *fenced) Patch(ctx context.Context, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
	if err := c.fence.Check(ctx); err != nil {
		return err
	}
	return c.Client.Patch(ctx, o, patch, opts...)
}

func (c *fenced) DeleteAllOf(ctx context.Context, o client.Object, opts ...client.DeleteAllOfOption) error {
	if err := c.fence.Check(ctx); err != nil {
		return err
	}
	return c.Client.DeleteAllOf(ctx, o, opts...)
}

func (c *fenced) Status() client.SubResourceWriter { return c.SubResource("status") }

func (c *fenced) SubResource(name string) client.SubResourceClient {
	return &fencedPart{SubResourceClient: c.Client.SubResource(name), fence: c.fence}
}

// fencedPart is a subresource of objects.
type fencedPart struct {
	client.SubResourceClient
	fence *Fence
}

func (c *fencedPart) Create(ctx context.Context, o, part client.Object, opts ...client.SubResourceCreateOption) error {
	if err := c.fence.Check(ctx); err != nil {
		return err
	}
	return c.SubResourceClient.Create(ctx, o, part, opts...)
}

func (c *fencedPart) Update(ctx context.Context, o client.Object, opts ...client.SubResourceUpdateOption) error {
	if err := c.fence.Check(ctx); err != nil {
		return err
	}
	return c.SubResourceClient.Update(ctx, o, opts...)
}

func (c *fencedPart) Patch(ctx context.Context, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	if err := c.fence.Check(ctx); err != nil {
		return err
	}
	return c.SubResourceClient.Patch(ctx, o, patch, opts...)
}

func (c *fencedPart) Apply(ctx context.Context, o runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
	if err := c.fence.Check(ctx); err != nil {
		return err
	}
	return c.SubResourceClient.Apply(ctx, o, opts...)
}
