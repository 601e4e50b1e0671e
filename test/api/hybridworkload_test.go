package api

func hybridWorkloads() table {
	rows := []row{{
		field:   "spec.serviceName",
		rule:    "serviceName must be the name of a Service: lower-case letters, digits and -",
		accepts: []string{`serviceName: w`, `serviceName: web-1`},
		refuses: []string{`serviceName: ""`, `serviceName: Web`, `serviceName: shop/web`, `serviceName: web-`, `serviceName: 1web`},
	}, {
		field:   "spec.port",
		rule:    "port must be from 1 to 65535",
		accepts: []string{`port: 1`, `port: 65535`},
		refuses: []string{`port: 0`, `port: 65536`},
	}, {
		field:   "spec.tls.secretName",
		rule:    "tls.secretName must begin with joulevirt-tls-, since gateways can have no other Secrets: name the Secret so, which is spec.secretName of a Certificate of cert-manager",
		accepts: []string{`tls: {secretName: joulevirt-tls-web}`, `tls: {secretName: joulevirt-tls-web.example.org}`},
		refuses: []string{`tls: {secretName: web-tls}`, `tls: {secretName: joulevirt-tls-}`, `tls: {secretName: joulevirt-tls-Web}`, `tls: {secretName: ""}`},
	}, {
		field:   "spec.memory",
		rule:    "min must not be above max: lower memory.min or raise memory.max",
		accepts: []string{`memory: {min: 1Gi, max: 1024Mi}`, `memory: {min: 16Mi, max: 1G}`},
		refuses: []string{`memory: {min: 1Gi, max: 1023Mi}`, `memory: {max: 1Mi}`},
	}, {
		field:   "spec.memory.min",
		rule:    "min must be at least 16Mi bytes",
		accepts: []string{`memory: {min: 16Mi}`, `memory: {min: 17M}`},
		refuses: []string{`memory: {min: 16M}`, `memory: {min: 0}`, `memory: {min: -1Gi}`, `memory: {min: some}`},
	}, {
		field:   "spec.memory.max",
		rule:    "max must be at most 64Gi bytes",
		accepts: []string{`memory: {max: 64Gi}`},
		refuses: []string{`memory: {max: 65Gi}`, `memory: {max: 1P}`, `memory: {max: all}`},
	}, {
		field:   "spec.targetResponseTime",
		rule:    "targetResponseTime must be a duration from 1ms to 1m, such as 50ms",
		accepts: []string{`targetResponseTime: 1ms`, `targetResponseTime: 1m`, `targetResponseTime: 1.5s`},
		refuses: []string{`targetResponseTime: 999us`, `targetResponseTime: 61s`, `targetResponseTime: fast`},
	}, {
		field:   "spec",
		rule:    "targetResponseTime must be set for path Cache, such as 50ms",
		accepts: []string{`path: Cache`, `targetResponseTime: 1s`},
		refuses: []string{`targetResponseTime: null`, "path: Cache\ntargetResponseTime: null"},
	}, {
		field:   "spec",
		rule:    "targetResponseTime must not be set for path SharedMemory, whose shares have the size memory.max: remove it",
		accepts: []string{"path: SharedMemory\ntargetResponseTime: null"},
		refuses: []string{`path: SharedMemory`},
	}, {
		field:   "spec.idleEviction",
		rule:    "idleEviction must be a duration from 1s to 24h, such as 1m",
		accepts: []string{`idleEviction: 1s`, `idleEviction: 24h`},
		refuses: []string{`idleEviction: 999ms`, `idleEviction: 25h`, `idleEviction: never`},
	}}
	return table{
		namespaced: true,
		minimal:    `{selector: {matchLabels: {app: web}}, serviceName: web, port: 80, memory: {max: 1Gi}, targetResponseTime: 50ms}`,
		rows:       append(rows, profileSelectorRows()...),
	}
}
