// Package v1alpha1 holds the kinds of the joulevirt.io API: what owners of
// VMs declare (VMNetworkProfile, HybridWorkload), what an admin allows (EnergyPolicy), what a
// node reports (NodeReport), what is to be done on it (NodePlan) and what was saved
// (EnergyLedger).
// +kubebuilder:object:generate=true
// +groupName=joulevirt.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every kind in this package.
var GroupVersion = schema.GroupVersion{Group: "joulevirt.io", Version: "v1alpha1"} //nolint:gochecknoglobals // the name that users of API packages expect

// AddToScheme adds the kinds of this package to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&VMNetworkProfile{}, &VMNetworkProfileList{},
		&EnergyPolicy{}, &EnergyPolicyList{},
		&NodeReport{}, &NodeReportList{},
		&NodePlan{}, &NodePlanList{},
		&EnergyLedger{}, &EnergyLedgerList{},
		&PlacementPlan{}, &PlacementPlanList{},
		&HybridWorkload{}, &HybridWorkloadList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
