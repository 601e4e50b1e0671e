package main

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/joulevirt/joulevirt/controllers"
	"github.com/joulevirt/joulevirt/internal/page"
	"github.com/joulevirt/joulevirt/internal/version"
)

// leaseAge is how old the last renewal of the Lease may be for a manager to lead: it is renewed
// each few seconds.
const leaseAge = time.Minute

// addPage adds the page. Nil: it is turned off.
func addPage(mgr manager.Manager, o *options, gate *controllers.Gate, live *controllers.Live) (*page.Page, error) {
	if !o.page {
		return nil, nil
	}
	leads := func() bool {
		select {
		case <-mgr.Elected():
			return true
		default:
			return false
		}
	}
	p := page.New(page.Options{
		Reader: mgr.GetClient(), Live: live, Ready: func() error { return gate.Check(nil) },
		Leads: leads, Led: func(ctx context.Context) (bool, error) {
			if leads() {
				return true, nil
			}
			return leaseRenewed(ctx, mgr.GetAPIReader(), o.namespace, time.Now())
		},
		Version: version.String(), Clock: clock.RealClock{}, Log: mgr.GetLogger().WithName("page"),
	})
	if err := mgr.Add(p); err != nil {
		return nil, fmt.Errorf("add the page: %w", err)
	}
	return p, nil
}

// leaseRenewed reports whether some manager leads, by the managers' Lease.
func leaseRenewed(ctx context.Context, reader client.Reader, namespace string, now time.Time) (bool, error) {
	var lease coordinationv1.Lease
	err := reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: leaseName}, &lease)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read Lease %s/%s: %w", namespace, leaseName, err)
	}
	renewed := lease.Spec.RenewTime
	return renewed != nil && now.Sub(renewed.Time) < leaseAge, nil
}
