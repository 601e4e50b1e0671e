package main

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/joulevirt/joulevirt/controllers"
	"github.com/joulevirt/joulevirt/internal/page"
	"github.com/joulevirt/joulevirt/internal/version"
)

// noAddress turns a server off.
const noAddress = "0"

// leaseAge is how old the last renewal of the Lease may be for a manager to lead: it is renewed
// each few seconds.
const leaseAge = time.Minute

// addPage adds the built-in page, unless it is turned off.
func addPage(mgr manager.Manager, o *options, clients kubernetes.Interface, gate *controllers.Gate, live *controllers.Live) error {
	if o.pageAddress == noAddress {
		return nil
	}
	leads := func() bool {
		select {
		case <-mgr.Elected():
			return true
		default:
			return false
		}
	}
	log := mgr.GetLogger().WithName("page")
	p, err := page.New(page.Options{
		Reader: mgr.GetClient(), Reviews: clients, Live: live, Ready: func() error { return gate.Check(nil) },
		Leads: leads, Led: func(ctx context.Context) (bool, error) {
			if leads() {
				return true, nil
			}
			return leaseRenewed(ctx, mgr.GetAPIReader(), o.namespace, time.Now())
		},
		Version: version.String(), Clock: clock.RealClock{}, Log: log,
	})
	if err != nil {
		return err
	}
	if err := mgr.Add(&page.Server{Page: p, Address: o.pageAddress, CertDir: o.pageCertDir, Log: log}); err != nil {
		return fmt.Errorf("add the page: %w", err)
	}
	return nil
}

// leaseRenewed tells whether some manager leads, by the managers' Lease.
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
