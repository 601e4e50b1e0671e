// Package sim is a simulated node behind host.Host, so that the same agent code that runs on
// Linux runs on thousands of nodes in one process. Its clock moves only in Advance; reading
// has no effects. Its physics are its own, and contain effects that the product's model of
// power does not know: clocks that follow load, depths of sleep, temperature, instructions of
// different energy, errors of the meter. It says that it is simulated wherever a host says
// what it is.
//
// It does not model TCP, latency of replies, batches of packets, memory by NUMA node, disks,
// efficiency cores, cpusets, VMs without vhost, guest tools, or hosts that are VMs.
package sim
