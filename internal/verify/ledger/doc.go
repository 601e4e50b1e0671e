// Package ledger books the joules that levers save, by node, lever and month, each with its
// interval. What a meter judged and what a model said are kept apart, and what the product
// itself draws is booked against them. The whole ledger is some kilobytes that go into the
// status of an object: nothing else survives the manager. docs/design/proof-and-ledger.md tells how
// errors add up and what is refused.
//
// One ledger is of one policy. It is not safe for concurrent use.
package ledger

// Confidence of the intervals with which savings are reported.
const Confidence = 0.95
