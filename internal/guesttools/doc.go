// Package guesttools is what runs inside a guest to hold packets for as long as its host
// says: what the guest sends, by the program and the queue of internal/datapath on the
// guest's own card; what it receives, by deferring the card's interrupts. A guest whose
// host does not answer is left as it is.
package guesttools
