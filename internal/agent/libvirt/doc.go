// Package libvirt asks the libvirt of a VM's launcher for facts about its
// domain. It only reads. The launcher is the VM's owner's side of the fence: its
// answers are checked before the client library sees them (guard.go), they
// are bounded in size and time, and a failure only means that there are no
// facts.
package libvirt
