package main

// value is something that users of the chart may set.
type value struct {
	// path in values.yaml, by dots.
	path  string
	about string
	// schema is the JSON Schema of it, without its description.
	schema map[string]any
	// standard is its default. Where the value has a place of kind taken, the
	// manifests say it.
	standard any
	places   []place
}

// place is where in an object a value goes.
type place struct {
	object string // KIND/NAME
	path   string // of the map, by dots
	key    string
	form   form
	// flag that an argument sets.
	flag string
}

type form int

const (
	// scalar replaces what stands there, which is the default.
	scalar form = iota
	// block replaces a map or a list, which is the default.
	block
	// added is a map or a list that the manifests have not.
	added
	// argument is a flag that is passed when it is set.
	argument
	// refusal is a flag that is passed as false when the value is.
	refusal
	// arguments are a list of flags.
	arguments
)

const (
	deployment = "Deployment/joulevirt-manager"
	daemonSet  = "DaemonSet/joulevirt-agent"
	podSpec    = "spec.template.spec"
	container  = "spec.template.spec.containers"
)

func stringSchema() map[string]any { return map[string]any{"type": "string"} }

func patternSchema(pattern string) map[string]any {
	return map[string]any{"type": "string", "pattern": pattern}
}

func boolSchema() map[string]any { return map[string]any{"type": "boolean"} }

func objectSchema() map[string]any { return map[string]any{"type": "object"} }

func arraySchema() map[string]any { return map[string]any{"type": "array"} }

func labelsSchema() map[string]any {
	return map[string]any{"type": "object", "additionalProperties": stringSchema()}
}

func enumSchema(of ...any) map[string]any { return map[string]any{"enum": of} }

const (
	duration = `^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	optional = `|^$`
)

// values lists all of them, in the order of values.yaml.
func values() []value {
	all := []value{
		{path: "commonLabels", about: "Labels of every object.", schema: labelsSchema(), standard: map[string]any{}},
		{path: "imagePullSecrets", about: "Secrets of the release's namespace to pull the images with: [{name: NAME}].", schema: arraySchema(),
			standard: []any{}, places: []place{{deployment, podSpec, "imagePullSecrets", added, ""}, {daemonSet, podSpec, "imagePullSecrets", added, ""}}},
		{path: "crds.enabled", about: "Install the kinds, and update them with the chart.", schema: boolSchema(), standard: true},
		{path: "crds.keep", about: "Keep the kinds, and all policies and profiles, when the release is uninstalled. Policies are paused then.",
			schema: boolSchema(), standard: false},
	}
	all = append(all, programValues("manager", deployment, "Deployment of the manager")...)
	all = append(all, value{path: "manager.replicas", about: "Pods of the manager: one leads, the others wait.",
		schema: map[string]any{"type": "integer", "minimum": 1}, places: []place{{deployment, "spec", "replicas", scalar, ""}}},
		value{path: "manager.vmPower", about: "Ask Prometheus servers for the power of VMs too, a series a VM.", schema: boolSchema(), standard: false,
			places: []place{{deployment, container, "args", argument, "vm-power"}}})
	all = append(all, programValues("agent", daemonSet, "DaemonSet of the agents")...)
	all = append(all, value{path: "agent.sampleInterval", about: "Time between two rounds of samples, from 100ms to 30s. Guards look once a round: above 1s they undo levers later than within 2 s. Empty: the agent's own, 1s.",
		schema: patternSchema(duration + optional), standard: "", places: []place{{daemonSet, container, "args", argument, "sample-interval"}}},
		value{path: "agent.staleAfter", about: "Age of the manager's Lease from which on agents put everything back. Empty: the agent's own, 15m.",
			schema: patternSchema(duration + optional), standard: "", places: []place{{daemonSet, container, "args", argument, "stale-after"}}},
		value{path: "agent.perVMMetrics", about: "Have the agents' /metrics show each VM.", schema: boolSchema(), standard: true,
			places: []place{{daemonSet, container, "args", refusal, "per-vm-metrics"}}},
		value{path: "agent.updateStrategy", about: "How agents are replaced. One that ends puts its node back.", schema: objectSchema(),
			places: []place{{daemonSet, "spec", "updateStrategy", block, ""}}})
	return append(all, otherValues()...)
}

// programValues are those that manager and agent both have.
func programValues(program, object, what string) []value {
	of := func(key string) string { return program + "." + key }
	pod := func(key string, f form) []place { return []place{{object, podSpec, key, f, ""}} }
	in := func(key string, f form) []place { return []place{{object, container, key, f, ""}} }
	return []value{
		{path: of("image.repository"), about: "Image of the " + what + ", with the registry.", schema: stringSchema()},
		{path: of("image.tag"), about: "Its tag. Empty: the chart's appVersion.", schema: stringSchema(), standard: ""},
		{path: of("image.digest"), about: "Its digest, sha256:..., which counts instead of the tag.",
			schema: patternSchema(`^sha256:[0-9a-f]{64}$` + optional), standard: ""},
		{path: of("image.pullPolicy"), about: "When it is pulled.", schema: enumSchema("Always", "IfNotPresent", "Never"),
			places: in("imagePullPolicy", scalar)},
		{path: of("logLevel"), about: "debug, info, error, or a number for more than debug. Empty: info.",
			schema: patternSchema(`^(debug|info|error|panic|[0-9]+)$` + optional), standard: "",
			places: []place{{object, container, "args", argument, "zap-log-level"}}},
		{path: of("extraArgs"), about: "More arguments, such as --flag=value; " + program + " --help lists them.",
			schema:   map[string]any{"type": "array", "items": patternSchema("^--")},
			standard: []any{}, places: []place{{object, container, "args", arguments, ""}}},
		{path: of("resources"), about: "What its container requests, and its limits.", schema: objectSchema(), places: in("resources", block)},
		{path: of("nodeSelector"), about: "Nodes that it runs on, by labels.", schema: objectSchema(), places: pod("nodeSelector", block)},
		{path: of("tolerations"), about: "Taints of nodes that it runs on nevertheless.", schema: arraySchema(), places: pod("tolerations", toleration(program))},
		{path: of("affinity"), about: "Affinity of its pods.", schema: objectSchema(), standard: map[string]any{}, places: pod("affinity", added)},
		{path: of("priorityClassName"), about: "Priority of its pods. The default is installed with it.", schema: stringSchema(),
			places: pod("priorityClassName", scalar)},
		{path: of("podLabels"), about: "More labels of its pods.", schema: labelsSchema(), standard: map[string]any{}},
		{path: of("podAnnotations"), about: "More annotations of its pods.", schema: labelsSchema(), standard: map[string]any{}},
	}
}

// toleration: agents have tolerations in the manifests, the manager has none.
func toleration(program string) form {
	if program == "agent" {
		return block
	}
	return added
}

func otherValues() []value {
	return []value{
		{path: "serviceMonitor.enabled", about: "Install monitors of manager and agents for the Prometheus Operator.", schema: boolSchema(), standard: false},
		{path: "serviceMonitor.labels", about: "More labels of them, for a Prometheus that selects by labels.", schema: labelsSchema(), standard: map[string]any{}},
		{path: "serviceMonitor.scraper.namespace", schema: stringSchema(), standard: "",
			about: "Namespace of the ServiceAccount that Prometheus runs under. With its name, it gets the right to read /metrics, without which manager and agents refuse it."},
		{path: "serviceMonitor.scraper.name", about: "Its name, such as prometheus-k8s.", schema: stringSchema(), standard: ""},
		{path: "prometheusRule.enabled", schema: boolSchema(), standard: false,
			about: "Install rules for the Prometheus Operator. Where nothing scrapes manager and agents, alert JoulevirtManagerDown fires: see serviceMonitor."},
		{path: "prometheusRule.labels", about: "More labels of them.", schema: labelsSchema(), standard: map[string]any{}},
		{path: "grafana.enabled", about: "Install dashboards, as ConfigMaps that Grafana's sidecar finds.", schema: boolSchema(), standard: false},
		{path: "grafana.labels", about: "More labels of them.", schema: labelsSchema(), standard: map[string]any{}},
		{path: "openshift.enabled", about: "Install the SecurityContextConstraints that the agents need on OpenShift.", schema: boolSchema(), standard: false},
		{path: "policy.preset", schema: enumSchema("", "observe"), standard: "",
			about: "EnergyPolicy to begin with: observe, which changes nothing and tells what could be saved. " +
				"It is made at the first install only and is yours from then on. What acts on nodes is applied by you: policies/."},
		{path: "removal.enabled", schema: boolSchema(), standard: true,
			about: "Before an uninstall, a Job undoes all levers, gives VMs back their traffic and removes what the manager made. Without it see docs/removal.md."},
		{path: "removal.timeout", about: "How long it waits for that, below the --timeout of helm uninstall (5m).", schema: patternSchema(duration), standard: "4m"},
		{path: "removal.resources", about: "What its container requests, and its limits.", schema: objectSchema(), standard: map[string]any{
			"requests": map[string]any{"cpu": "10m", "memory": "32Mi"}, "limits": map[string]any{"memory": "128Mi"},
		}},
	}
}
