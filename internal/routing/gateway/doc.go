// Package gateway steers groups behind routes of the Gateway API by the weights
// of their backends. Each VM of the group has a Service of its own; when there
// are more VMs than a route may have backends, VMs with equal shares share one,
// by a label on their launcher pods. The route is generated from the profile's
// template and wholly ours, or it is a route that nobody gave rules: its rules
// are then applied, and never forced.
package gateway
