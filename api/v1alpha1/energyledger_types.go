package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// EnergyLedgerStatus is what the manager remembers of a policy's experiments and savings.
// It is read once, when a manager starts to lead. EnergyPolicy.status says the same for
// people.
type EnergyLedgerStatus struct {
	// memory holds the joules that were booked, the trials under way and what was decided: a
	// JSON document, compressed by gzip.
	// +kubebuilder:validation:MaxLength=1048576
	// +optional
	Memory []byte `json:"memory,omitempty"`
}

// EnergyLedger is the manager's memory of one EnergyPolicy, whose name it has and with
// which it goes.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=eled,categories={joulevirt}
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type EnergyLedger struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// status is the manager's.
	// +optional
	Status EnergyLedgerStatus `json:"status,omitempty"`
}

// EnergyLedgerList is a list of EnergyLedgers.
// +kubebuilder:object:root=true
type EnergyLedgerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []EnergyLedger `json:"items"`
}
