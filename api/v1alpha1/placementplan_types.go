package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PlacementCost is what a live migration takes.
type PlacementCost struct {
	// bytes that are copied, at least: the VM's memory.
	Bytes int64 `json:"bytes"`
	// seconds that it takes, at most: by KubeVirt's completion timeout.
	Seconds int32 `json:"seconds"`
	// joules that both nodes draw more meanwhile, modelled.
	Joules int64 `json:"joules"`
	// breaksConnections is true if the VM's address changes: its TCP connections end.
	BreaksConnections bool `json:"breaksConnections"`
}

// PlacementMove is a live migration that is planned.
type PlacementMove struct {
	// namespace of the VirtualMachineInstance.
	Namespace string `json:"namespace"`
	// name of the VirtualMachineInstance.
	Name string `json:"name"`
	// uid of the VirtualMachineInstance.
	UID types.UID `json:"uid"`
	// from is the node that runs the VM.
	From string `json:"from"`
	// to is the node that is to run it.
	To string `json:"to"`
	// watts that the nodes draw less, modelled, on average over now and the next 12 hours by what VMs
	// used the day before: this move's part of what all save. Below 0 for one that costs energy
	// because a VM suffers.
	Watts Decimal `json:"watts"`
	// cost of the move.
	Cost PlacementCost `json:"cost"`
	// reason is VMSuffers, NodeHot or SavesEnergy.
	Reason string `json:"reason"`
}

// PlacementNode is what a node carries before the planned moves, and after them.
type PlacementNode struct {
	// name of the node.
	Name string `json:"name"`
	// before the moves.
	Before PlacementLoad `json:"before"`
	// after all of them.
	After PlacementLoad `json:"after"`
}

// PlacementLoad is what a node carries.
type PlacementLoad struct {
	// vms that run on the node.
	VMs int32 `json:"vms"`
	// cpuPercent of its CPUs that are used, at the 95th percentile of 15 minutes.
	CPUPercent int32 `json:"cpuPercent"`
	// watts that the node draws, modelled, on average over now and the next 12 hours: 0 where its host
	// is, or will be, powered off. Absent: its power is not known.
	// +optional
	Watts Decimal `json:"watts,omitempty"`
}

// PlacementPlanSpec says which VMs are to be moved.
type PlacementPlanSpec struct {
	// policy is the EnergyPolicy that the plan is of.
	Policy string `json:"policy"`
	// mode of the policy.
	Mode PolicyMode `json:"mode"`
	// apply is true when the moves may be made: in mode Enforce, or when the revision was
	// approved.
	Apply bool `json:"apply"`
	// revision stands for these moves, decided at this time: it is what an approval names.
	// Empty: nothing is to be moved.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Revision string `json:"revision,omitempty"`
	// decidedAt is when the moves were decided.
	// +optional
	DecidedAt *metav1.Time `json:"decidedAt,omitempty"`
	// wattsBefore is what the nodes draw whose power is known, modelled, on average over now and the next
	// 12 hours.
	// +optional
	WattsBefore Decimal `json:"wattsBefore,omitempty"`
	// wattsAfter is what they will draw when all moves are made.
	// +optional
	WattsAfter Decimal `json:"wattsAfter,omitempty"`
	// moves in the order in which they are made.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +optional
	Moves []PlacementMove `json:"moves,omitempty"`
	// nodes from and to which VMs are moved.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	// +optional
	Nodes []PlacementNode `json:"nodes,omitempty"`
}

// PlacementPhase is how far a move is.
// +kubebuilder:validation:Enum=Pending;Running;Succeeded;Failed;Withdrawn
type PlacementPhase string

const (
	// PlacementPending means that the migration waits for its target pod.
	PlacementPending PlacementPhase = "Pending"
	// PlacementRunning means that the target pod runs: KubeVirt ends the migration by itself.
	PlacementRunning PlacementPhase = "Running"
	// PlacementSucceeded means that the VM runs on the target node.
	PlacementSucceeded PlacementPhase = "Succeeded"
	// PlacementFailed means that the VM runs where it was, or on another node.
	PlacementFailed PlacementPhase = "Failed"
	// PlacementWithdrawn means that the manager deleted the migration before the target pod ran.
	PlacementWithdrawn PlacementPhase = "Withdrawn"
)

// PlacementOutcome is what became of a move.
type PlacementOutcome struct {
	// revision of the plan that had the move.
	Revision string `json:"revision"`
	// namespace of the VirtualMachineInstance.
	Namespace string `json:"namespace"`
	// name of the VirtualMachineInstance.
	Name string `json:"name"`
	// from is the node that ran the VM.
	From string `json:"from"`
	// to is the node that was to run it.
	To string `json:"to"`
	// migration is the name of the VirtualMachineInstanceMigration.
	Migration string `json:"migration"`
	// phase of the move.
	Phase PlacementPhase `json:"phase"`
	// reason is a CamelCase word: why the VM is moved, or why the move failed or was withdrawn.
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`
	// message has details.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Message string `json:"message,omitempty"`
	// createdAt is when the migration was created.
	CreatedAt metav1.Time `json:"createdAt"`
	// endedAt is when its end was observed.
	// +optional
	EndedAt *metav1.Time `json:"endedAt,omitempty"`
}

// PlacementPlanStatus is what became of the plan.
type PlacementPlanStatus struct {
	// moves of the last 24 hours, at most 512, the newest last.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	// +optional
	Moves []PlacementOutcome `json:"moves,omitempty"`
	// stays counts the VMs that are not moved, by reason.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +optional
	Stays []ReasonCount `json:"stays,omitempty"`
	// hosts of the policy's nodes, with spec.hostPower of the policy: at most 1024, those that are
	// not on first.
	// +listType=map
	// +listMapKey=node
	// +kubebuilder:validation:MaxItems=1024
	// +optional
	Hosts []HostStatus `json:"hosts,omitempty"`
	// conditions: Ready, MovesAllowed, and with spec.hostPower of the policy HostsManaged.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Conditions and reasons of a PlacementPlan. Reasons for which a VM is moved, or stays, are in
// package planner/placement too.
const (
	// ConditionMovesAllowed is True when planned moves are made now, within the budgets.
	ConditionMovesAllowed = "MovesAllowed"

	// ReasonMovesPlanned: the plan has moves.
	ReasonMovesPlanned = "MovesPlanned"
	// ReasonNoMoves: no VM is better on another node.
	ReasonNoMoves = "NoMoves"
	// ReasonMovesAllowed: moves are made.
	ReasonMovesAllowed = "MovesAllowed"
	// ReasonPlacementUnsupported: KubeVirt cannot be told a migration's target node.
	ReasonPlacementUnsupported = "PlacementUnsupported"
	// ReasonKubeVirtUpdating: KubeVirt is being deployed, or migrates VMs to update them.
	ReasonKubeVirtUpdating = "KubeVirtUpdating"

	// ReasonNodeNotSchedulable: KubeVirt starts no VM on the node now.
	ReasonNodeNotSchedulable = "NodeNotSchedulable"
	// ReasonLoadUnknown: the load of the VM or its node was not observed for long enough.
	ReasonLoadUnknown = "LoadUnknown"
	// ReasonPlacementDenied: spec.placement of the profile is Deny.
	ReasonPlacementDenied = "PlacementDenied"
	// ReasonPlacementNotAllowed: the VM's address would change, and its owner did not agree to that.
	ReasonPlacementNotAllowed = "PlacementNotAllowed"
	// ReasonNotMigratable: KubeVirt's condition LiveMigratable is not True.
	ReasonNotMigratable = "NotMigratable"
	// ReasonHostDevice: the VM has a device or a filesystem of its node.
	ReasonHostDevice = "HostDevice"
	// ReasonPostCopy: a migration of the VM may pause it, or lose it.
	ReasonPostCopy = "PostCopyAllowed"
	// ReasonDescheduler: a descheduler may spread what is moved together.
	ReasonDescheduler = "Descheduler"
	// ReasonWritesTooFast: the VM writes memory faster than a migration copies it.
	ReasonWritesTooFast = "WritesTooFast"
	// ReasonMigrating: the VM is being migrated, evacuated or changed already.
	ReasonMigrating = "Migrating"
	// ReasonHostnameSelected: the VM selects its node by kubernetes.io/hostname.
	ReasonHostnameSelected = "HostnameSelected"
	// ReasonNoLauncher: the VM's launcher pod was not found.
	ReasonNoLauncher = "NoLauncher"

	// ReasonMigrationSlots: KubeVirt's slots for migrations are taken, but for the one that
	// stays free.
	ReasonMigrationSlots = "MigrationSlots"
	// ReasonNoTargetPod: KubeVirt made no target pod within a minute.
	ReasonNoTargetPod = "NoTargetPod"
	// ReasonNotApproved: the plan's revision is no longer approved.
	ReasonNotApproved = "NotApproved"
	// ReasonMoveOutdated: the VM, its node or the target is no longer as it was planned.
	ReasonMoveOutdated = "MoveOutdated"
	// ReasonMigrationFailed: KubeVirt's migration failed.
	ReasonMigrationFailed = "MigrationFailed"
	// ReasonMigrationDeleted: somebody else deleted the migration.
	ReasonMigrationDeleted = "MigrationDeleted"
)

const (
	// LabelPlacement marks the migrations of lever Placement, with value PlacementMoveLabel.
	LabelPlacement     = "joulevirt.io/placement"
	PlacementMoveLabel = "move"
	// AnnotationPolicy and the others on a migration are the EnergyPolicy and the plan's
	// revision for which it was created, both nodes, and why the VM is moved.
	AnnotationPolicy   = "joulevirt.io/policy"
	AnnotationRevision = "joulevirt.io/revision"
	AnnotationFrom     = "joulevirt.io/from"
	AnnotationTo       = "joulevirt.io/to"
	AnnotationReason   = "joulevirt.io/reason"
)

// PlacementPlan has the moves of VMs between the nodes of one EnergyPolicy, whose name it has
// and with which it goes. The manager writes spec and status.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=pplan,categories={joulevirt}
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Apply",type=boolean,JSONPath=`.spec.apply`
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.spec.revision`
// +kubebuilder:printcolumn:name="Watts before",type=string,JSONPath=`.spec.wattsBefore`
// +kubebuilder:printcolumn:name="Watts after",type=string,JSONPath=`.spec.wattsAfter`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Moves allowed",type=string,JSONPath=`.status.conditions[?(@.type=="MovesAllowed")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PlacementPlan struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the manager's.
	// +required
	Spec PlacementPlanSpec `json:"spec"`
	// status is the manager's.
	// +optional
	Status PlacementPlanStatus `json:"status,omitempty"`
}

// PlacementPlanList is a list of PlacementPlans.
// +kubebuilder:object:root=true
type PlacementPlanList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PlacementPlan `json:"items"`
}
