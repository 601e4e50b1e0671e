package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// LabelEnergyCredentials is on the Secrets that may be sent to servers that policies name.
const LabelEnergyCredentials = "joulevirt.io/energy-credentials"

// MatcherValue is what a label of a series must be.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=253
type MatcherValue string

// PrometheusSource says which server is asked for what.
// +kubebuilder:validation:XValidation:rule="!has(self.query) || !has(self.matchers)",message="matchers narrow down Kepler's counters: with query, write the labels into the query"
type PrometheusSource struct {
	// url of the server, such as https://prometheus.monitoring.svc:9090. Put no
	// password into it: who may read policies reads it.
	// +kubebuilder:validation:XValidation:rule="isURL(self) && (url(self).getScheme() == 'https' || url(self).getScheme() == 'http')",message="url must be an http or https URL, such as https://prometheus.monitoring.svc:9090"
	// +kubebuilder:validation:MaxLength=2048
	// +required
	URL string `json:"url"`

	// query is a PromQL expression that yields one sample a node, in watts,
	// with a label node. Without it the counters of Kepler 0.10 and newer are read.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Query *string `json:"query,omitempty"`

	// matchers are labels that Kepler's counters must have, with their values, such as
	// namespace: kepler. Without them everybody whose exporter the server scrapes can speak
	// for the meter of any node.
	// +kubebuilder:validation:XValidation:rule="self.all(name, name.matches('^[a-zA-Z_][a-zA-Z0-9_]{0,62}$') && name != '__name__' && name != 'zone')",message="matchers must be names of labels, up to 63 letters, digits and underscores, and neither __name__ nor zone"
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=8
	// +optional
	Matchers map[string]MatcherValue `json:"matchers,omitempty"`

	// secret is the name of a Secret in the manager's namespace with any of the keys token,
	// ca.crt, tls.crt and tls.key, and with a label joulevirt.io/energy-credentials. It is read each time that the server is asked. A token is
	// sent over https only.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Secret string `json:"secret,omitempty"`
}

// EnergySource is one place to read power from.
// +kubebuilder:validation:XValidation:rule="(self.type == 'Prometheus') == has(self.prometheus)",message="prometheus goes with type Prometheus: set both, or neither"
type EnergySource struct {
	// type of the source.
	// +kubebuilder:validation:Enum=Prometheus;RAPL;Model
	// +required
	Type PowerSource `json:"type"`

	// prometheus says which server is asked for what.
	// +optional
	Prometheus *PrometheusSource `json:"prometheus,omitempty"`

	// freshness is the age at which a figure of this source is no longer used and
	// the next source is taken. It must be more than the time between two scrapes
	// and the 15 s between two questions to the server. Mode Enforce does nothing
	// new without a measured figure, and takes back what is in force when all
	// meters had none for three times their freshness.
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('1h')",message="freshness must be a duration from 1s to 1h, such as 30s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:default="2m"
	// +optional
	Freshness *metav1.Duration `json:"freshness,omitempty"`
}

// EnergySettings say where energy is read and what counts.
type EnergySettings struct {
	// sources in the order in which they are tried, each type once.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:default={{type: "RAPL"},{type: "Model"}}
	// +optional
	Sources []EnergySource `json:"sources,omitempty"`

	// allowModelled lets mode Enforce act on nodes without a meter. Savings
	// there are booked as modelled.
	// +optional
	AllowModelled bool `json:"allowModelled,omitempty"`
}
