package controllers

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// VersionedLeases returns a client that notes a version on each Lease that it writes. By the
// same request that says who leads, so that it is always of the one who does.
func VersionedLeases(leases coordinationclient.LeasesGetter, version string) coordinationclient.LeasesGetter {
	return &versionedLeases{LeasesGetter: leases, version: version}
}

type versionedLeases struct {
	coordinationclient.LeasesGetter
	version string
}

func (v *versionedLeases) Leases(namespace string) coordinationclient.LeaseInterface {
	return &versionedLease{LeaseInterface: v.LeasesGetter.Leases(namespace), version: v.version}
}

type versionedLease struct {
	coordinationclient.LeaseInterface
	version string
}

func (v *versionedLease) Create(ctx context.Context, lease *coordinationv1.Lease, options metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return v.LeaseInterface.Create(ctx, v.noted(lease), options)
}

func (v *versionedLease) Update(ctx context.Context, lease *coordinationv1.Lease, options metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return v.LeaseInterface.Update(ctx, v.noted(lease), options)
}

func (v *versionedLease) noted(lease *coordinationv1.Lease) *coordinationv1.Lease {
	lease = lease.DeepCopy()
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, v1alpha1.AnnotationManagerVersion, v.version)
	return lease
}
