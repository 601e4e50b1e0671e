// Package linux implements host.Host on a Linux node. The roots of /proc,
// /sys and the cgroup file systems are given by the caller, who may have them
// mounted elsewhere or, in a test, made up.
//
// It reads the files of the hot path itself instead of through
// prometheus/procfs: at one second and 800 threads, the maps and the scanning
// by fmt of that library cost several times the CPU of the reads, and its
// net/dev parser indexes fields without counting them. What is read seldom
// (the processor's name) goes through the library.
package linux
