package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// OffloadPath is how a gateway gets what it sends.
// +kubebuilder:validation:Enum=Cache;SharedMemory
type OffloadPath string

const (
	// PathCache: the gateway stores what the VM answers.
	PathCache OffloadPath = "Cache"
	// PathSharedMemory: the VM writes files to memory of the node, and the gateway sends them.
	PathSharedMemory OffloadPath = "SharedMemory"
)

// GatewayMemory bounds what a gateway stores.
// +kubebuilder:validation:XValidation:rule="!isQuantity(string(self.min)) || !isQuantity(string(self.max)) || quantity(string(self.min)).compareTo(quantity(string(self.max))) <= 0",message="min must not be above max: lower memory.min or raise memory.max"
type GatewayMemory struct {
	// min that a gateway stores whatever its response time is. Path SharedMemory ignores it.
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('16Mi')) >= 0",message="min must be at least 16Mi bytes"
	// +kubebuilder:default="16Mi"
	// +optional
	Min resource.Quantity `json:"min,omitempty"`
	// max that a gateway may store. Its pod requests that much memory of the node, and 192Mi
	// for its programs. With path SharedMemory it is the size of each VM's share, from the VM's
	// next start on, and charged to the VM.
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('64Gi')) <= 0",message="max must be at most 64Gi bytes"
	// +required
	Max resource.Quantity `json:"max"`
}

// GatewayTLS is the certificate of a Service.
type GatewayTLS struct {
	// secretName is a Secret of type kubernetes.io/tls in the object's namespace. VMs serve its certificate,
	// or one of the issuer in its ca.crt for the first name in it.
	// +kubebuilder:validation:XValidation:rule="self.matches('^joulevirt-tls-[a-z0-9]([-.a-z0-9]*[a-z0-9])?$')",message="tls.secretName must begin with joulevirt-tls-, since gateways can have no other Secrets: name the Secret so, which is spec.secretName of a Certificate of cert-manager"
	// +kubebuilder:validation:MaxLength=253
	// +required
	SecretName string `json:"secretName"`
}

// HybridWorkloadSpec says which VMs compute and stream, and by which Service.
// +kubebuilder:validation:XValidation:rule="self.path != 'Cache' || has(self.targetResponseTime)",message="targetResponseTime must be set for path Cache, such as 50ms"
// +kubebuilder:validation:XValidation:rule="self.path != 'SharedMemory' || !has(self.targetResponseTime)",message="targetResponseTime must not be set for path SharedMemory, whose shares have the size memory.max: remove it"
type HybridWorkloadSpec struct {
	// selector picks VirtualMachineInstances of the object's namespace by label.
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",message="selector must not be empty: name at least one label of the VMs in matchLabels or matchExpressions"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && size(e.values) > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || size(e.values) == 0))",message="selector.matchExpressions must each be In or NotIn with values, or Exists or DoesNotExist without"
	// +kubebuilder:validation:XValidation:rule="(!has(self.matchLabels) || size(self.matchLabels) <= 32) && (!has(self.matchExpressions) || size(self.matchExpressions) <= 16 && self.matchExpressions.all(e, !has(e.values) || size(e.values) <= 64))",message="selector must have at most 32 matchLabels and 16 matchExpressions of 64 values"
	// +required
	Selector metav1.LabelSelector `json:"selector"`

	// serviceName is the Service by which clients reach the VMs. It has one TCP port, with
	// HTTP. Its selector includes joulevirt.io/serving: active, or its owner agrees by
	// annotation joulevirt.io/adopt: "true" that it is added.
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="serviceName must be the name of a Service: lower-case letters, digits and -"
	// +kubebuilder:validation:MaxLength=63
	// +required
	ServiceName string `json:"serviceName"`

	// port of the Service that clients use.
	// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 65535",message="port must be from 1 to 65535"
	// +required
	Port int32 `json:"port"`

	// tls has gateways speak TLS with clients and with the VMs, which serve it on the Service's port
	// themselves. Not set: both speak plain HTTP.
	// +optional
	TLS *GatewayTLS `json:"tls,omitempty"`

	// path is how gateways get what they send: Cache, they store what the VMs answer, or SharedMemory,
	// the VMs write files to a share in the node's memory and name them in X-Accel-Redirect.
	// +kubebuilder:default=Cache
	// +optional
	Path OffloadPath `json:"path,omitempty"`

	// memory bounds what each gateway stores.
	// +required
	Memory GatewayMemory `json:"memory"`

	// targetResponseTime is the mean time in which clients are to be answered: with what was
	// measured, a gateway chooses how much it stores. Path Cache needs it, SharedMemory has none.
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) >= duration('1ms') && duration(self) <= duration('1m')",message="targetResponseTime must be a duration from 1ms to 1m, such as 50ms"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +optional
	TargetResponseTime *metav1.Duration `json:"targetResponseTime,omitempty"`

	// idleEviction is how long a gateway stores what nobody asks for. In a share, files that nobody
	// asked for or wrote for so long are removed.
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="idleEviction must be a duration from 1s to 24h, such as 1m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:default="1m"
	// +optional
	IdleEviction *metav1.Duration `json:"idleEviction,omitempty"`
}

// GatewayStatus is one VM and the gateway that answers for it.
type GatewayStatus struct {
	// vm is the name of the VirtualMachineInstance.
	VM string `json:"vm"`
	// node that runs both.
	// +optional
	Node string `json:"node,omitempty"`
	// pod of the gateway, absent while the VM has no gateway.
	// +optional
	Pod string `json:"pod,omitempty"`
	// ready is true when clients reach the gateway, and the VM only through it, or when the gateway stands by
	// while a trial or hold-back has them reach the VM.
	Ready bool `json:"ready"`
	// reason is a CamelCase word.
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`
	// message has details.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Message string `json:"message,omitempty"`
}

// HybridWorkloadStatus is what became of it.
type HybridWorkloadStatus struct {
	// observedGeneration is the generation of the spec that this status is of, -1 until
	// there is one.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// vms that are selected and run, or wait for their shares.
	// +optional
	VMs int32 `json:"vms"`
	// readyGateways are those that clients reach, or that stand by for a trial or hold-back.
	// +optional
	ReadyGateways int32 `json:"readyGateways"`
	// gateways of some of the VMs, at most 256, in the order of the VMs' names.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +optional
	Gateways []GatewayStatus `json:"gateways,omitempty"`
	// withdrawn are gateways that were taken from VMs because they harmed clients, and those that were
	// and are remembered: what harms again is withdrawn for longer.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +optional
	Withdrawn []WithdrawnLever `json:"withdrawn,omitempty"`
	// conditions: Ready.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Reasons of a HybridWorkload's condition and of its gateways. Those for which a VM may have no
// gateway are a policy's, too.
const (
	// ReasonGatewayServes: clients reach the gateway.
	ReasonGatewayServes = "GatewayServes"
	// ReasonGatewayStarting: the gateway's pod is not ready yet, or not yet in the Service.
	ReasonGatewayStarting = "GatewayStarting"
	// ReasonGatewayFailed: the gateway's pod ended, or its node refused it.
	ReasonGatewayFailed = "GatewayFailed"
	// ReasonGatewayEnding: the gateway is being removed.
	ReasonGatewayEnding = "GatewayEnding"
	// ReasonGatewayRefused: the API server refuses the gateway's pod.
	ReasonGatewayRefused = "GatewayRefused"
	// ReasonGatewayTLS: the gateway cannot use the Secret, or the VM does not serve a certificate that fits it.
	ReasonGatewayTLS = "GatewayTLS"
	// ReasonNotEnforced: the policy's mode is not Enforce.
	ReasonNotEnforced = "NotEnforced"
	// ReasonServicePort: the Service does not have that one port, or not as a gateway can serve it.
	ReasonServicePort = "ServicePort"
	// ReasonServiceTaken: a profile's group or an older HybridWorkload has the Service.
	ReasonServiceTaken = "ServiceTaken"
	// ReasonSelectedElsewhere: an object of somebody else selects the VM's pod, or would select the gateway.
	ReasonSelectedElsewhere = "SelectedElsewhere"
	// ReasonOffloadNotInstalled: what the manager makes gateways from is not installed.
	ReasonOffloadNotInstalled = "OffloadNotInstalled"
	// ReasonShareNotInstalled: what path SharedMemory needs beside is not installed.
	ReasonShareNotInstalled = "ShareNotInstalled"
	// ReasonShareMissing: the VM's template does not name a share and its claim.
	ReasonShareMissing = "ShareMissing"
	// ReasonShareTaken: the claim of that name is not of this VM.
	ReasonShareTaken = "ShareTaken"
	// ReasonSharePending: the claim has no volume yet.
	ReasonSharePending = "SharePending"
	// ReasonShareBlocksDrain: by its evictionStrategy the VM would hold up drains, since it cannot migrate.
	ReasonShareBlocksDrain = "ShareBlocksDrain"
	// ReasonShareMemory: files in the share would have virtiofsd killed.
	ReasonShareMemory = "ShareMemory"
)

const (
	// LabelGateway is on gateways' pods. Its value is the UID of the launcher pod that the gateway
	// is for.
	LabelGateway = "joulevirt.io/gateway"
	// GatewayTemplate is the name of the PodTemplate, in the manager's namespace, that gateways are
	// made from.
	GatewayTemplate = "joulevirt-gateway"
	// TLSExitCode is what a gateway ends with when its owner has to correct the Secret or what the VM serves.
	TLSExitCode = 78
)

// Path SharedMemory: a file system in a node's memory, the share, that a VM writes to by virtiofs
// and its gateway reads. It is a PersistentVolume that the manager makes for a claim of the VM, and
// DaemonSet joulevirt-share mounts.
const (
	// ShareName is what the VM's template names the filesystem and its volume, which is also what
	// the guest mounts. The StorageClass and the DaemonSet have the same name.
	ShareName = "joulevirt-share"
	// SharePrefix begins the names of shares' claims and volumes.
	SharePrefix = ShareName + "-"
	// ShareProvisioner is the provisioner of the StorageClass.
	ShareProvisioner = "joulevirt.io/share"
	// LabelShare is "true" on shares' claims and volumes.
	LabelShare = "joulevirt.io/share"
	// AnnotationShareNode on a share's volume is the name of the node that mounts it.
	AnnotationShareNode = "joulevirt.io/share-node"
	// ShareRoot is the node's folder of shares. ShareRoot/CLAIM-UID is where a share is mounted, and
	// ShareFiles in it is the folder that the VM gets.
	ShareRoot  = "/var/lib/joulevirt-share"
	ShareFiles = "files"
	// ShareUser is QEMU's user and group in launcher pods, who owns the files. Gateways of shares run as it.
	ShareUser = 107
	// ShareSpare is the memory that virtiofsd needs beside the files of a share, in bytes.
	ShareSpare = 128 << 20
	// HeaderShare is on requests by which the gateway offers the VM to send a file of the share: the VM
	// answers with X-Accel-Redirect, of ShareLocation and the file's name.
	HeaderShare   = "X-Joulevirt-Share"
	ShareLocation = "/joulevirt-share/"
)

// HybridWorkload has gateways answer for VMs that compute and serve what they computed: each sends
// a byte once, to the gateway on its node, and the gateway sends it to all clients.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=hwl,categories={joulevirt}
// +kubebuilder:printcolumn:name="Service",type=string,JSONPath=`.spec.serviceName`
// +kubebuilder:printcolumn:name="Memory",type=string,JSONPath=`.spec.memory.max`
// +kubebuilder:printcolumn:name="VMs",type=integer,JSONPath=`.status.vms`
// +kubebuilder:printcolumn:name="Gateways",type=integer,JSONPath=`.status.readyGateways`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type HybridWorkload struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the owner's.
	// +required
	Spec HybridWorkloadSpec `json:"spec"`
	// status is the manager's. Until it observed the object, observedGeneration is -1:
	// kstatus takes what says nothing for current.
	// +kubebuilder:default={"observedGeneration":-1}
	// +optional
	Status HybridWorkloadStatus `json:"status,omitempty"`
}

// HybridWorkloadList is a list of HybridWorkloads.
// +kubebuilder:object:root=true
type HybridWorkloadList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []HybridWorkload `json:"items"`
}
