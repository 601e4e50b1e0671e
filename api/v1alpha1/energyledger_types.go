package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// EnergyLedgerStatus is what the manager remembers of a policy's experiments and savings.
// It is read once, when a manager starts to lead. EnergyPolicy.status says the same for
// people.
type EnergyLedgerStatus struct {
	// storedAt is when it was written.
	// +optional
	StoredAt metav1.Time `json:"storedAt,omitzero"`
	// ledger holds the joules that were booked, in the program's own form.
	// +kubebuilder:validation:MaxLength=1048576
	// +optional
	Ledger []byte `json:"ledger,omitempty"`
	// proofs hold the trials under way and what was decided, in the program's own form.
	// +kubebuilder:validation:MaxLength=1048576
	// +optional
	Proofs []byte `json:"proofs,omitempty"`
	// evidence is what was measured here, as a file that spec.verification.evidence of a
	// policy, here or in another cluster, can start from.
	// +kubebuilder:validation:MaxLength=262144
	// +optional
	Evidence string `json:"evidence,omitempty"`
}

// EnergyLedger is the manager's memory of one EnergyPolicy, whose name it has and with
// which it goes.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=eled,categories={joulevirt}
// +kubebuilder:printcolumn:name="Stored",type=date,JSONPath=`.status.storedAt`
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
