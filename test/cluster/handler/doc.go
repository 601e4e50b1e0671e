// Package handler stands in for virt-handler, and on a real node also for the
// kubelet, in the test cluster. Together with the launcher stand-in it is the
// only fake there: everything that talks to it (virt-controller, virt-api, the
// API server) is the real thing. VMIs on simulated nodes are only moved through
// their phases; VMIs on a real node are handed to a Runtime, which starts them.
package handler
