package model

// Reasons of a group's shares that are not those of nodes.
const (
	// ReasonNoPolicy: no policy governs the nodes of the members.
	ReasonNoPolicy Reason = "NoPolicy"
	// ReasonMixedPolicies: some members are on nodes that no policy governs, or of
	// which one's policy does not allow the lever.
	ReasonMixedPolicies Reason = "MixedPolicies"
	// ReasonNoMembers: no running VM belongs to the group.
	ReasonNoMembers Reason = "NoMembers"
	// ReasonNoReadyMembers: no VM of the group may serve.
	ReasonNoReadyMembers Reason = "NoReadyMembers"
	// ReasonMemberNotReady: the VM may not serve.
	ReasonMemberNotReady Reason = "MemberNotReady"
	// ReasonLearning: it is not known yet how much traffic the members carry well.
	ReasonLearning Reason = "Learning"
	// ReasonKept: the member keeps what it has.
	ReasonKept Reason = "Kept"
)
