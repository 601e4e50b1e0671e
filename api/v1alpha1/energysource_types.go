package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// EnergySourceType is where the power of a node is read.
// +kubebuilder:validation:Enum=Prometheus;RAPL;Model
type EnergySourceType string

const (
	// EnergySourcePrometheus asks a Prometheus server.
	EnergySourcePrometheus EnergySourceType = "Prometheus"
	// EnergySourceRAPL reads the node's own energy counters.
	EnergySourceRAPL EnergySourceType = "RAPL"
	// EnergySourceModel models the power from load. It proves no saving.
	EnergySourceModel EnergySourceType = "Model"
)

// PrometheusSeries chooses what is asked of a Prometheus server.
// +kubebuilder:validation:Enum=Auto;Kepler;KeplerLegacy;Platform;Query
type PrometheusSeries string

// SecretReference names a Secret and its namespace.
type SecretReference struct {
	// namespace of the Secret.
	// +kubebuilder:validation:MinLength=1
	Namespace string `json:"namespace"`
	// name of the Secret.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
}

// PrometheusSource says which server is asked for what.
// +kubebuilder:validation:XValidation:rule="(self.series == 'Query') == has(self.query)",message="query goes with series Query: set both, or neither"
type PrometheusSource struct {
	// url of the server, such as https://prometheus.monitoring.svc:9090.
	// +kubebuilder:validation:XValidation:rule="isURL(self) && (url(self).getScheme() == 'https' || url(self).getScheme() == 'http')",message="url must be an http or https URL, such as https://prometheus.monitoring.svc:9090"
	// +kubebuilder:validation:MaxLength=2048
	// +required
	URL string `json:"url"`

	// series chooses what is asked: Kepler is version 0.10 and newer,
	// KeplerLegacy is 0.9 and older, Platform is kepler_platform_watts, Query is
	// the admin's own query. Auto takes the first that answers.
	// +kubebuilder:default=Auto
	// +optional
	Series PrometheusSeries `json:"series,omitempty"`

	// query is a PromQL expression that yields one sample a node, in watts,
	// with a label node.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Query *string `json:"query,omitempty"`

	// secret holds any of the keys token, ca.crt, tls.crt and tls.key.
	// +optional
	Secret *SecretReference `json:"secret,omitempty"`
}

// EnergySource is one place to read power from.
// +kubebuilder:validation:XValidation:rule="(self.type == 'Prometheus') == has(self.prometheus)",message="prometheus goes with type Prometheus: set both, or neither"
type EnergySource struct {
	// type of the source.
	// +required
	Type EnergySourceType `json:"type"`

	// prometheus says which server is asked for what.
	// +optional
	Prometheus *PrometheusSource `json:"prometheus,omitempty"`

	// freshness is the age at which a figure of this source is no longer used.
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('1h')",message="freshness must be a duration from 1s to 1h, such as 30s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:default="1m"
	// +optional
	Freshness *metav1.Duration `json:"freshness,omitempty"`
}

// EnergySettings say where energy is read and what counts.
// +kubebuilder:validation:XValidation:rule="!has(self.sources) || self.sources.all(s, self.sources.filter(t, t.type == s.type).size() == 1)",message="sources must name each type once: remove the repeated one"
type EnergySettings struct {
	// sources in the order in which they are tried.
	// +listType=atomic
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
