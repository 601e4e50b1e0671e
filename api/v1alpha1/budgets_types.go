package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ChangeWindow is a recurring time.
type ChangeWindow struct {
	// schedule is when the window opens, in five cron fields, UTC. Days of the month and of
	// the week, both given, count each.
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9A-Za-z*/,-]+( [0-9A-Za-z*/,-]+){4}$')",message="schedule must have five cron fields with one space between, such as 0 22 * * 1-5"
	// +kubebuilder:validation:MaxLength=128
	// +required
	Schedule string `json:"schedule"`

	// duration that the window stays open.
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) >= duration('1m') && duration(self) <= duration('168h')",message="duration must be a duration from 1m to 168h, such as 8h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +required
	Duration metav1.Duration `json:"duration"`
}

// Budgets bound how much changes at once, and when. What must be undone never waits.
type Budgets struct {
	// maxNodesChanging is the number of nodes that may be changing at once: those whose
	// plan got new actions that the node's agent did not confirm yet, for ten minutes at
	// most.
	// +kubebuilder:validation:XValidation:rule="self >= 1",message="maxNodesChanging must be 1 or more: to change nothing, set mode to Observe"
	// +kubebuilder:default=10
	// +optional
	MaxNodesChanging int32 `json:"maxNodesChanging,omitempty"`

	// maxMigrationsAtOnce is the number of live migrations of lever Placement that run at
	// a time, one for each target node. One of KubeVirt's own slots always stays free for
	// evacuations.
	// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 20",message="maxMigrationsAtOnce must be from 1 to 20: to move nothing, remove Placement from spec.levers"
	// +kubebuilder:default=2
	// +optional
	MaxMigrationsAtOnce int32 `json:"maxMigrationsAtOnce,omitempty"`

	// maxMigrationsPerHour is the number of live migrations that lever Placement starts
	// within an hour.
	// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 100",message="maxMigrationsPerHour must be from 1 to 100: to move nothing, remove Placement from spec.levers"
	// +kubebuilder:default=10
	// +optional
	MaxMigrationsPerHour int32 `json:"maxMigrationsPerHour,omitempty"`

	// windows in which changes are allowed. None: always. Outside, what is in force stays
	// as far as it is allowed and within the guardrails, and nothing new is done.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Windows []ChangeWindow `json:"windows,omitempty"`

	// freezes are times in which nothing new is done, within windows too.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Freezes []ChangeWindow `json:"freezes,omitempty"`
}

// AnnotationOptOut on a VirtualMachineInstance, where the template of its VirtualMachine
// may put it, or on a Node keeps levers away: all when it is "true", or those of a list
// such as "Affinity,Buffering". "false" keeps none away, any other value all.
const AnnotationOptOut = "joulevirt.io/opt-out"

// Conditions and reasons of when an EnergyPolicy's changes are made.
const (
	// ConditionPaused is True when spec.paused is.
	ConditionPaused = "Paused"
	// ConditionChangesAllowed is True when budgets.windows and budgets.freezes let
	// something new be done now, and the policy is not paused.
	ConditionChangesAllowed = "ChangesAllowed"
	// ConditionApprovalsMatched is True when each of spec.approvals is the revision of a
	// recommendation that stands. Reported in mode Recommend.
	ConditionApprovalsMatched = "ApprovalsMatched"

	// ReasonPaused: spec.paused of the policy is true.
	ReasonPaused = "Paused"
	// ReasonNotPaused: it is not.
	ReasonNotPaused = "NotPaused"
	// ReasonOutsideChangeWindow: no window of budgets.windows is open.
	ReasonOutsideChangeWindow = "OutsideChangeWindow"
	// ReasonInFreeze: it is a time of budgets.freezes.
	ReasonInFreeze = "InFreeze"
	// ReasonInvalidSchedule: a schedule of budgets.windows or budgets.freezes cannot be
	// read, or never comes: nothing new is done.
	ReasonInvalidSchedule = "InvalidSchedule"
	// ReasonChangesAllowed: windows and freezes leave it open.
	ReasonChangesAllowed = "ChangesAllowed"
	// ReasonChangeBudgetNodes: as many nodes are changing as budgets.maxNodesChanging
	// allows.
	ReasonChangeBudgetNodes = "ChangeBudgetNodes"
	// ReasonEdited: somebody else changed the NodePlan, which was made anew.
	ReasonEdited = "Edited"
	// ReasonOptedOut: annotation joulevirt.io/opt-out of the VM or the node.
	ReasonOptedOut = "OptedOut"

	// ReasonAllMatched: each approval is of a recommendation that stands.
	ReasonAllMatched = "AllMatched"
	// ReasonApprovalUnmatched: approvals are of recommendations that were replaced, or of nothing that is known.
	ReasonApprovalUnmatched = "ApprovalUnmatched"
)
