package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// HostPower says how hosts without VMs are powered off and on.
// +kubebuilder:validation:XValidation:rule="has(self.metal3) != has(self.redfish)",message="spec.hostPower must have either metal3 or redfish: the provider that powers hosts"
type HostPower struct {
	// reserveNodes is how many nodes without VMs stay on, for VMs that start and for a node that
	// fails.
	// +kubebuilder:validation:XValidation:rule="self >= 0 && self <= 100",message="reserveNodes must be from 0 to 100"
	// +kubebuilder:default=1
	// +optional
	ReserveNodes *int32 `json:"reserveNodes,omitempty"`

	// metal3 powers hosts by their BareMetalHost. That of a node is named by its spec.providerID,
	// or by label joulevirt.io/node on the BareMetalHost.
	// +optional
	Metal3 *Metal3Power `json:"metal3,omitempty"`

	// redfish powers hosts by their management controllers.
	// +optional
	Redfish *RedfishPower `json:"redfish,omitempty"`
}

// Metal3Power powers hosts by BareMetalHosts.
type Metal3Power struct {
	// namespace of the BareMetalHosts. The manager needs the rights of Role joulevirt-host-power there.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	Namespace string `json:"namespace"`
}

// RedfishPower powers hosts by Redfish.
type RedfishPower struct {
	// secretNamespace has a Secret for each node, of the node's name and with label
	// joulevirt.io/host-power-credentials. Its keys are address, such as https://10.1.0.7, username,
	// password, and ca.crt if the certificate is of an authority of your own. The manager needs
	// the rights of Role joulevirt-host-power there.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	SecretNamespace string `json:"secretNamespace"`

	// insecureSkipVerify accepts any certificate, and addresses with http://: whoever is between
	// can read the credentials.
	// +optional
	InsecureSkipVerify bool `json:"insecureSkipVerify,omitempty"`
}

// HostState is how far a host is.
// +kubebuilder:validation:Enum=On;Cordoned;ShuttingDown;Off;PoweringOn;Failed
type HostState string

const (
	// HostOn means that the manager has not powered the host off.
	HostOn HostState = "On"
	// HostCordoned means that the node takes no pods, and is powered off if it is still empty then.
	HostCordoned HostState = "Cordoned"
	// HostShuttingDown means that the provider was asked to power the host off.
	HostShuttingDown HostState = "ShuttingDown"
	// HostOff means that the provider reports the host as off.
	HostOff HostState = "Off"
	// HostPoweringOn means that the provider was asked to power the host on.
	HostPoweringOn HostState = "PoweringOn"
	// HostFailed means that the host did not come back in time.
	HostFailed HostState = "Failed"
)

// HostStatus is what becomes of a host.
type HostStatus struct {
	// node that runs on the host.
	Node string `json:"node"`
	// state of the host.
	State HostState `json:"state"`
	// since is when it came into this state. Absent for one that is on.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// reason is a CamelCase word: why the host is not powered off, or on.
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`
	// message has details.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Message string `json:"message,omitempty"`
}

// What marks nodes, and what belongs to them.
const (
	// AnnotationHostPower on a Node is what the manager did to power its host off, in JSON. While
	// it is there, the cordon and the marks that it names are the manager's.
	AnnotationHostPower = "joulevirt.io/host-power"
	// AnnotationHostFailed on a Node says that its host did not come back. Who repairs the host
	// removes it.
	AnnotationHostFailed = "joulevirt.io/host-failed"
	// AnnotationHostBoot on a Node is when its host was last powered on, and how many seconds it took.
	AnnotationHostBoot = "joulevirt.io/host-boot"
	// LabelHostCredentials is on the Secrets with which hosts may be powered.
	LabelHostCredentials = "joulevirt.io/host-power-credentials"
	// LabelNode on a BareMetalHost names its Node, where spec.providerID of the Node does not name it.
	LabelNode = "joulevirt.io/node"
)

// Conditions and reasons of hosts. Reasons for which a host is powered or not are in package
// planner/power too.
const (
	// ConditionHostsManaged is True when the hosts of the policy can be powered.
	ConditionHostsManaged = "HostsManaged"

	// ReasonHostsManaged: the provider knows the hosts that were checked.
	ReasonHostsManaged = "HostsManaged"
	// ReasonHostUnknown: the provider has no host of the node, or it is of another node.
	ReasonHostUnknown = "HostUnknown"
	// ReasonHostRefused: the host's owner does not let it be powered off.
	ReasonHostRefused = "HostRefused"
	// ReasonHostCredentials: the credentials of the host are missing, or not meant for it, or refused.
	ReasonHostCredentials = "HostCredentials"
	// ReasonHostUnreachable: the provider does not answer.
	ReasonHostUnreachable = "HostUnreachable"
	// ReasonHostRights: the manager lacks rights.
	ReasonHostRights = "HostRightsMissing"
	// ReasonHostFailed: a host did not come back.
	ReasonHostFailed = "HostFailed"
	// ReasonHostContested: two policies with spec.hostPower select the node.
	ReasonHostContested = "HostContested"
	// ReasonDaemonSetRollout: pods of a DaemonSet are being replaced.
	ReasonDaemonSetRollout = "DaemonSetRollout"
	// ReasonHealthCheck: a health check that the manager does not know would remediate the node.
	ReasonHealthCheck = "HealthCheckUnknown"
)
