package controllers

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// TestLeaseNamesVersion: who leads and of what version is said by the same object, from the
// first Lease on and after each change of leader.
func TestLeaseNamesVersion(t *testing.T) {
	clients := fake.NewClientset()
	for _, leader := range []struct{ identity, version string }{{"pod-1", "v1"}, {"pod-2", "v2+dirty"}, {"pod-1", "v1"}} {
		lock := &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: "system", Name: "manager"},
			Client:    VersionedLeases(clients.CoordinationV1(), leader.version),
		}
		record := resourcelock.LeaderElectionRecord{HolderIdentity: leader.identity, RenewTime: metav1.NewTime(time.Unix(1, 0))}
		write := lock.Update
		if _, _, err := lock.Get(t.Context()); err != nil {
			write = lock.Create
		}
		if err := write(t.Context(), record); err != nil {
			t.Fatal(err)
		}
		lease, err := clients.CoordinationV1().Leases("system").Get(t.Context(), "manager", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := lease.Annotations[v1alpha1.AnnotationManagerVersion]; got != leader.version || *lease.Spec.HolderIdentity != leader.identity {
			t.Errorf("%s leads with version %q, want %s with %s", *lease.Spec.HolderIdentity, got, leader.identity, leader.version)
		}
	}
}
