// Package symptoms detects that a VM suffers: its threads wait for CPUs, packets towards it
// are lost or pile up, or it moves less than it did.
//
// Threads and packets of a second report whether a lever must be reverted at once (Round). Rates
// of a pull are compared with the service levels of the VM's profile (Levels). Rates over
// minutes tell who is to blame: the VM's own CPU limit or weight, other work on the same cores, or
// the VM's own computing (History). There, figures become signs, each of which comes when the
// figure was beyond its limit for a while and goes when it was clearly within for longer; a while
// is judged by a quartile, so that a single figure out of the ordinary changes nothing.
package symptoms
