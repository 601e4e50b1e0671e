// Package guards tells when a lever hurts a VM in ways that show over minutes, or off the
// node only: service levels of its profile that are broken with the lever and not without,
// a guest that ceases to be ready when the lever comes on, and alerts that admins name. It
// withdraws the lever, for longer each time. What it decides by is given to it; the memory
// is its own, and what plans remember for it. docs/design/guard.md tells the rules.
package guards
