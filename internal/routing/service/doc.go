// Package service steers groups behind a Service. The Service's selector
// includes the label joulevirt.io/serving: active, which the template of the
// group's VMs carries; the writer changes that label on launcher pods, and
// Kubernetes makes the Service's endpoints of it. A pod on standby gets no new
// connections and keeps those that it has, so shares are 0 or 1/k of new
// connections. Pods are born active: what restarts or migrates while nobody
// steers serves.
package service
