// Package discover finds out which VirtualMachineInstance a process runs, and
// what each of its threads does. It is pure: processes and API objects come in
// as values. Whatever a VM's owner can influence (names, command lines,
// cgroup paths) is distrusted: what does not fit is an unknown process, never
// an error.
package discover
