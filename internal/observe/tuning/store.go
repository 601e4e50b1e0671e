// Package tuning keeps what the manager saw of each VM's packets with each window of
// buffering, over the rates that agents serve, and which windows hurt VMs of a profile.
package tuning
