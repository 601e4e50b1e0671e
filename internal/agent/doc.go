// Package agent is the part of the product that runs on each node. Its loop
// samples the node every second, publishes the rates, and keeps the affinities
// of the VMs' threads as the NodePlan wants them for as long as the plan
// exists, is to be applied, and its manager is alive.
//
// discover, sample, metering, actuate, journal, libvirt, watch and publish are its
// parts; this package puts them together.
package agent
